"""A task's input as the type of a handler's annotation: what fits, what does not, and what an error says."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import subprocess
import sys
import uuid
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import pydantic
import pytest

from activity_worker.errors import HandlerSignatureError, InputInvalidError
from activity_worker.handlers.inputs import input_converter


class Size(enum.Enum):
    """How large."""

    SMALL = "small"
    LARGE = "large"


class Level(enum.IntEnum):
    """A level as a number."""

    LOW = 1


@dataclasses.dataclass
class Crop:
    """A part of a picture."""

    left: int
    right: int = 100


@dataclasses.dataclass(frozen=True)
class Resize:
    """A job with a check of its own."""

    bucket: str
    widths: list[int]
    crop: Crop | None = None
    size: Size = Size.SMALL
    tags: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.bucket:
            raise ValueError(f"the bucket is {self.bucket!r}")


@dataclasses.dataclass
class Tree:
    """A type that contains itself."""

    name: str
    children: "list[Tree]" = dataclasses.field(default_factory=list)


class Options(TypedDict):
    """A dict with known keys."""

    width: int
    height: NotRequired[int]


class Point(NamedTuple):
    """A place."""

    x: float
    y: float = 0.0


class Model(pydantic.BaseModel):
    """A pydantic model."""

    bucket: str
    width: int = pydantic.Field(gt=0)
    at: dt.datetime | None = None


class StrictModel(pydantic.BaseModel):
    """A pydantic model that converts nothing."""

    model_config = pydantic.ConfigDict(strict=True)
    at: dt.datetime


class Checked(pydantic.BaseModel):
    """A model whose validator says the value."""

    code: str

    @pydantic.field_validator("code")
    @classmethod
    def check(cls, value: str) -> str:
        raise ValueError(f"{value} is no code")


@dataclasses.dataclass
class WithModel:
    """A dataclass that has a model."""

    model: Model


UserId = NewType("UserId", int)


def convert(annotation: Any, value: Any) -> Any:
    """Convert as the runtime does: with the parsed value and the text."""
    return input_converter(annotation, "handle")(value, json.dumps(value))


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(InputInvalidError) as caught:
        convert(annotation, value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Any, {"a": 1}, {"a": 1}),
        (dict, {"a": 1}, {"a": 1}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict[Size, int], {"small": 1}, {Size.SMALL: 1}),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (list, [1], [1]),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[str], ["a", "a"], {"a"}),
        (int, 3, 3),
        (int, 3.0, 3),
        (str, "a", "a"),
        (bool, True, True),
        (int | str, "3", "3"),
        (int | None, None, None),
        (bytes, "ä", "ä".encode()),
        (Literal["a", 1], 1, 1),
        (Annotated[int, "documented"], 3, 3),
        (UserId, 7, 7),
        (Size, "large", Size.LARGE),
        (Level, 1, Level.LOW),
        (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
        (decimal.Decimal, 2.5, decimal.Decimal("2.5")),
        (dt.datetime, "2026-11-22T10:00:00Z", dt.datetime(2026, 11, 22, 10, tzinfo=dt.UTC)),
        (dt.date, "2026-11-22", dt.date(2026, 11, 22)),
        (dt.timedelta, 90, dt.timedelta(seconds=90)),
        (dt.timedelta, "PT1H30M", dt.timedelta(hours=1, minutes=30)),
        (dt.timedelta, "-P1DT0.5S", -dt.timedelta(days=1, seconds=0.5)),
        (Path, "/a/b", Path("/a/b")),
        (Crop, {"left": 1, "other": 2}, Crop(1)),
        (Resize, {"bucket": "b", "widths": [1]}, Resize("b", [1])),
        (
            Resize,
            {"bucket": "b", "widths": [], "crop": {"left": 1, "right": 2}, "size": "large", "tags": {"a": "b"}},
            Resize("b", [], Crop(1, 2), Size.LARGE, {"a": "b"}),
        ),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (Options, {"width": 1, "more": 2}, {"width": 1, "more": 2}),
        (Point, {"x": 1}, Point(1.0)),
        (Model, {"bucket": "b", "width": 1}, Model(bucket="b", width=1)),
        (StrictModel, {"at": "2026-11-22T10:00:00Z"}, StrictModel(at=dt.datetime(2026, 11, 22, 10, tzinfo=dt.UTC))),
        (WithModel, {"model": {"bucket": "b", "width": 1}}, WithModel(Model(bucket="b", width=1))),
        (list[Model], [{"bucket": "b", "width": 1}], [Model(bucket="b", width=1)]),
        (Annotated[int, pydantic.Field(gt=1)], 2, 2),
    ],
)
def test_input_that_fits_arrives_as_the_annotated_type(annotation: Any, value: Any, expected: Any) -> None:
    found = convert(annotation, value)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (int, "secret", "input: expected a whole number"),
        (int, True, "input: expected a whole number"),
        (int, 2.5, "input: expected a whole number"),
        (str, 1, "input: expected text"),
        (list[int], ["secret"], "input[0]: expected a whole number"),
        (list[int], {}, "input: expected a list"),
        (dict[str, int], {"a b": "secret"}, 'input["a b"]: expected a whole number'),
        (tuple[int, int], [1], "input: expected a list of 2"),
        (set[Any], [[]], "input: expected a list whose values can be members of a set"),
        (int | str, [], "input: expected int or str"),
        (int | None, "secret", "input: expected a whole number"),
        (Literal["a", "b"], "secret", 'input: expected one of "a", "b"'),
        (Size, "secret", "input: expected one of small, large"),
        (Size, ["secret"], "input: expected one of small, large"),
        (dt.datetime, "secret", "input: expected a date and time as in RFC 3339"),
        (dt.timedelta, "PT", "input: expected seconds, or a duration such as PT1H30M"),
        (decimal.Decimal, "NaN", "input: expected a decimal number"),
        (Crop, ["secret"], "input: expected an object"),
        (Crop, {}, "input.left: required, but missing"),
        (Resize, {"bucket": "", "widths": []}, "input: Resize refused its fields with ValueError"),
        (
            Resize,
            {"bucket": 1, "widths": [1, "secret"], "crop": {}},
            (
                "input.bucket: expected text; input.widths[1]: expected a whole number;"
                " input.crop.left: required, but missing"
            ),
        ),
        (Tree, {"name": "a", "children": [{"name": 1}]}, "input.children[0].name: expected text"),
        (Options, {"height": 1}, "input.width: required, but missing"),
        (Point, {}, "input.x: required, but missing"),
        (Model, {"width": 0}, "input.bucket: Field required; input.width: Input should be greater than 0"),
        (WithModel, {"model": {"width": 1}}, "input.model.bucket: Field required"),
        (Checked, {"code": "secret"}, "input.code: refused by a validator of the model"),
        (Annotated[int, pydantic.Field(gt=1)], 1, "input: Input should be greater than 1"),
    ],
)
def test_input_that_does_not_fit_names_path_and_rule(annotation: Any, value: Any, problem: str) -> None:
    found = refusal(annotation, value)

    assert found == problem
    assert "secret" not in found


def test_many_problems_are_counted_beyond_ten() -> None:
    found = refusal(list[int], ["secret"] * 25)

    assert found.endswith("input[9]: expected a whole number; and 15 more")


def test_long_keys_of_the_input_are_cut_in_paths() -> None:
    assert refusal(dict[str, int], {"k" * 1000: "secret"}) == f"input.{'k' * 64}: expected a whole number"


@pytest.mark.parametrize("annotation", [type, object(), "Missing", list[ModuleType]])
def test_type_that_json_cannot_give_is_refused_at_the_start(annotation: Any) -> None:
    with pytest.raises(HandlerSignatureError, match=r"^handle: the type .* cannot be read from JSON: use a dataclass"):
        input_converter(annotation, "handle")


def test_dataclass_with_unreadable_annotations_is_refused_at_the_start() -> None:
    broken = dataclasses.make_dataclass("Broken", [("a", "Nowhere")])

    with pytest.raises(HandlerSignatureError, match="handle: the annotations of Broken: name 'Nowhere' is not defined"):
        input_converter(broken, "handle")


def test_handlers_of_standard_types_do_not_import_pydantic() -> None:
    program = """
import dataclasses, datetime, decimal, sys, uuid
sys.modules["pydantic"] = sys.modules["pydantic_core"] = None
from activity_worker.handlers.inputs import input_converter
from activity_worker.runtime.encoding import encode_output

@dataclasses.dataclass
class Job:
    id: uuid.UUID
    price: decimal.Decimal
    at: datetime.datetime

value = {"id": "12345678-1234-5678-1234-567812345678", "price": "1.5", "at": "2026-11-22T10:00:00Z"}
print(encode_output(input_converter(Job, "handle")(value, None)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == {
        "id": "12345678-1234-5678-1234-567812345678",
        "price": "1.5",
        "at": "2026-11-22T10:00:00Z",
    }
