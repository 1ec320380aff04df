"""The handlers in `examples/` work as their first lines say."""

import importlib.util
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from activity_operator.api.spec import PoolSpec
from activity_worker.testing import ActivityEnvironment

EXAMPLES = Path(__file__).parents[3] / "examples"


def handler_of(example: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(f"example_{example}", EXAMPLES / example / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: Callable[..., Any] = module.handle
    return handler


async def test_resize_scales_an_image() -> None:
    image = b"P6 4 2 255\n" + bytes(range(24))

    output = await ActivityEnvironment().run(handler_of("resize"), {"image": b64encode(image).decode(), "width": 2})

    small = b64encode(b"P6 2 1 255\n" + bytes([0, 1, 2, 6, 7, 8])).decode()
    assert output == {"image": small, "width": 2, "height": 1}


async def test_resize_fails_by_name_for_data_that_is_no_image() -> None:
    with pytest.raises(ValueError, match="binary PPM") as caught:
        await ActivityEnvironment().run(handler_of("resize"), {"image": b64encode(b"meow").decode(), "width": 2})

    assert type(caught.value).__name__ == "NotAnImageError"


async def test_wordcount_counts_and_reports_progress(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("two words\n" * 2500)
    environment = ActivityEnvironment()

    output = await environment.run(handler_of("wordcount"), {"path": str(tmp_path / "book.txt")})

    assert output == {"lines": 2500, "words": 5000}
    assert environment.progress == [{"lines": 1000}, {"lines": 2000}]


async def test_wordcount_fails_by_name_without_a_text(tmp_path: Path) -> None:
    environment = ActivityEnvironment()
    await environment.run(handler_of("wordcount"), {"path": str(tmp_path / "nothing.txt")})

    assert environment.response is not None
    assert environment.response.error == "WordCount.NoSuchText"


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("resize/pool.yaml", [50]),
        ("wordcount/pool.yaml", [5]),
        ("mail/pool.yaml", [20]),
        ("orders/pool.yaml", [10]),
        ("flows/pools.yaml", [5, 5, 20, 5]),
    ],
)
def test_pool_manifests_are_valid(path: str, most: list[int]) -> None:
    documents = yaml.safe_load_all((EXAMPLES / path).read_text())
    pools = [document["spec"] for document in documents if document["kind"] == "ActivityPool"]

    assert [PoolSpec.model_validate(spec).max_workers for spec in pools] == most
