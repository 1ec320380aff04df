"""The README names what exists: every field of the spec, and no command that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from activity_operator.api.spec import PoolSpec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fields_of(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield the paths of the leaves as a manifest writes them."""
    for name, info in model.model_fields.items():
        here = f"{path}{info.alias or name}"
        inner = next((part for part in parts_of(info.annotation) if issubclass(part, BaseModel)), None)
        if inner is None:
            yield here
        else:
            yield from fields_of(inner, f"{here}.")


def parts_of(annotation: object) -> list[type]:
    """Return the classes an annotation names, through `X | None`."""
    return [part for part in (annotation, *getattr(annotation, "__args__", ())) if isinstance(part, type)]


def table_of(text: str) -> set[str]:
    return set(re.findall(r"^\| `([A-Za-z.]+)` \|", text, re.MULTILINE))


def test_the_manifest_table_has_every_field_of_the_spec_and_no_other() -> None:
    fields = set(fields_of(PoolSpec))

    assert "scaling.scaleDown.zeroAfterSeconds" in fields
    assert fields == table_of(README)


def test_every_make_target_that_the_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))

    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))

    assert {"unit", "test"} <= named
    assert named <= targets


def test_every_file_that_the_readme_links_to_exists() -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", README)

    assert [path for path in linked if not (ROOT / path).exists()] == []
