"""What boto3 takes in the environment of handlers, whole and with the service models that the supervisor keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import files
from pathlib import Path

import botocore

from tests.bench.table import Row

ROOT = Path(__file__).parents[2]
#: boto3 and what it needs, without bytecode.
LIBRARIES = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
MODELS = Path(botocore.__file__).parent / "data"


def run() -> list[Row]:
    """Measure the installed libraries; return the rows."""
    whole, removed = whole_bytes(), removed_bytes()
    how = "sizes of the installed files, without bytecode"
    return [
        Row("boto3 and what it needs, whole, as handlers have it", f"{whole / 1e6:.1f} MB", how=how),
        Row(
            "the same with the models that the supervisor keeps",
            f"{(whole - removed) / 1e6:.1f} MB",
            how=f"{', '.join(kept_models())}, by the Dockerfile; {how}",
        ),
    ]


def kept_models() -> list[str]:
    """Return the services whose models the Dockerfile keeps for the supervisor."""
    text = (ROOT / "worker_image/Dockerfile").read_text(encoding="utf-8")
    return re.findall(r"! -name ([a-z-]+)", text)


def whole_bytes() -> int:
    """Return the bytes of boto3 and its libraries."""
    found = [file for name in LIBRARIES for file in files(name) or () if file.suffix != ".pyc"]
    return _bytes(Path(str(file.locate())) for file in found)


def removed_bytes() -> int:
    """Return the bytes of the models that the Dockerfile removes from the supervisor's environment."""
    kept = set(kept_models())
    folders = [folder for folder in MODELS.iterdir() if folder.is_dir() and folder.name not in kept]
    return _bytes(file for folder in folders for file in folder.rglob("*"))


def _bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())
