"""The size of boto3 in the environment of handlers, and what docs/operate.md says about it."""

import re
from pathlib import Path

import pytest

from tests.bench import library_sizes

PAGE = (Path(__file__).parents[3] / "docs/operate.md").read_text(encoding="utf-8")


def test_page_says_what_boto3_takes_whole_and_trimmed() -> None:
    (said,) = re.findall(r"boto3 is whole there: with its libraries ([\d.]+) MB, instead of ([\d.]+) MB", PAGE)
    whole, removed = library_sizes.whole_bytes(), library_sizes.removed_bytes()

    assert tuple(map(float, said)) == pytest.approx((whole / 1e6, (whole - removed) / 1e6), rel=0.05)


def test_trimmed_boto3_has_models_of_services_that_exist() -> None:
    kept = library_sizes.kept_models()

    assert "stepfunctions" in kept
    assert [name for name in kept if not (library_sizes.MODELS / name).is_dir()] == []
