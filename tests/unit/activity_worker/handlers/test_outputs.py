"""Outputs of a handler: what pydantic's `to_jsonable_python` takes is taken, and written the same way."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import uuid
from typing import Any

import pydantic
import pydantic_core
import pytest

from activity_worker.errors import OutputNotJsonError
from activity_worker.runtime.encoding import encode_output


class Size(enum.Enum):
    """How large."""

    SMALL = "small"


class Level(enum.IntEnum):
    """A level as a number."""

    LOW = 1


@dataclasses.dataclass
class Part:
    """A part of an output."""

    at: dt.datetime


@dataclasses.dataclass
class Whole:
    """An output of parts."""

    parts: tuple[Part, ...]
    price: decimal.Decimal


class Model(pydantic.BaseModel):
    """A pydantic model."""

    part: Part
    tags: set[str] = set()


NOW = dt.datetime(2026, 11, 22, 10, 30, 5, 120, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, "ä", True, None]},
        NOW,
        NOW.replace(tzinfo=None),
        NOW.astimezone(dt.timezone(dt.timedelta(hours=2))),
        NOW.date(),
        NOW.time(),
        dt.timedelta(0),
        dt.timedelta(hours=1),
        dt.timedelta(days=1, minutes=2, seconds=3, milliseconds=40),
        -dt.timedelta(days=1, seconds=7),
        uuid.UUID(int=7),
        decimal.Decimal("1.10"),
        Size.SMALL,
        Level.LOW,
        b"text",
        bytearray(b"text"),
        {"one"},
        frozenset({1}),
        collections.deque([1, 2]),
        (1, 2),
        pathlib.Path("/a/b"),
        ipaddress.IPv4Address("10.0.0.1"),
        ipaddress.ip_network("10.0.0.0/8"),
        Whole((Part(NOW),), decimal.Decimal(2)),
        Model(part=Part(NOW), tags={"a"}),
        [Model(part=Part(NOW))],
        {NOW.date(): 1, uuid.UUID(int=7): {Size.SMALL: Model(part=Part(NOW))}},
        {1: "a", 2.5: "c"},
        collections.OrderedDict(a=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_output_is_written_as_pydantic_writes_it(value: Any) -> None:
    expected = pydantic_core.to_jsonable_python(value)

    assert json.loads(encode_output(value)) == json.loads(json.dumps(expected))


def test_generator_is_written_as_a_list() -> None:
    assert encode_output({"rows": (number for number in range(3))}) == '{"rows":[0,1,2]}'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object is not a JSON type: return dicts, lists, text, numbers, a dataclass or a pydantic model"),
        ({"a": {"b": object()}}, "object is not a JSON type"),
        (b"\xff", "bytes is not UTF-8: encode it, for instance with base64"),
        ({frozenset({1}): 1}, "a key of the output is a list, which JSON cannot have"),
        ({object(): 1}, "object is not a JSON type"),
        (float("nan"), "Out of range float values are not JSON compliant"),
        (decimal.Context, "type is not a JSON type"),
    ],
)
def test_output_without_a_json_form_says_what_helps(value: Any, words: str) -> None:
    with pytest.raises(OutputNotJsonError, match=words):
        encode_output(value)


def test_output_that_contains_itself_is_refused() -> None:
    loop: dict[Any, Any] = {}
    loop["again"] = loop
    keyed: dict[Any, Any] = {NOW: loop}

    for value in (loop, keyed):
        with pytest.raises(OutputNotJsonError):
            encode_output(value)
