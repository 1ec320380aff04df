"""A task's arguments on the wire."""

from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from activity_worker.taskbroker.protocol import parameters as module
from activity_worker.taskbroker.protocol.parameters import (
    COMPRESS_ABOVE_BYTES,
    EncodedParameters,
    Parameters,
    ParametersError,
    decode_parameters,
    encode_parameters,
)
from tests.unit.activity_operator.core.examples import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@examples(40)
@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(), VALUES, max_size=3))
def test_arguments_survive_the_wire(args: list[Any], kwargs: dict[str, Any]) -> None:
    encoded = encode_parameters(Parameters(tuple(args), kwargs))
    assert decode_parameters(encoded.data, encoded.headers) == Parameters(tuple(args), kwargs)


def test_small_arguments_are_plain_msgpack() -> None:
    encoded = encode_parameters(Parameters((1,), {"a": b"x"}))
    assert encoded == EncodedParameters(msgpack.packb({"args": [1], "kwargs": {"a": b"x"}}), {})


def test_large_arguments_are_compressed_and_say_so() -> None:
    text = "x" * COMPRESS_ABOVE_BYTES
    encoded = encode_parameters(Parameters((text,)))
    assert encoded.headers == {"compression-type": "zstd"}
    assert len(encoded.data) < len(text)
    assert decode_parameters(encoded.data, encoded.headers) == Parameters((text,))


def test_frame_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1000)
    data = zstandard.ZstdCompressor().compress(b"x" * 1_000_000)
    with pytest.raises(ParametersError, match="more than 1000 bytes"):
        decode_parameters(data, {"compression-type": "zstd"})


def test_deprecated_json_is_read_where_there_are_no_bytes() -> None:
    text = '{"args": [1], "kwargs": {"a": 2}}'
    assert decode_parameters(b"", {}, text) == Parameters((1,), {"a": 2})
    assert decode_parameters(msgpack.packb({"args": [3]}), {}, text) == Parameters((3,))
    assert decode_parameters(b"", {}) == Parameters()


@pytest.mark.parametrize(
    ("data", "headers", "message"),
    [
        (b"\xc1", {}, "cannot be read as msgpack"),
        (b"\x92\x01", {}, "cannot be read as msgpack"),
        (b"\x91" * 5000, {}, "cannot be read as msgpack"),
        (b"\x01", {}, "not a map with args and kwargs"),
        (msgpack.packb({"args": 1}), {}, "args is not a list"),
        (msgpack.packb({"kwargs": {1: 2}}), {}, "kwargs is not a map from names"),
        (b"x", {"compression-type": "zstd"}, "cannot be read as zstd"),
        (b"x", {"compression-type": "gzip"}, "none of: zstd"),
    ],
)
def test_unreadable_arguments_are_refused(data: bytes, headers: dict[str, str], message: str) -> None:
    with pytest.raises(ParametersError, match=message):
        decode_parameters(data, headers)


def test_value_without_a_msgpack_form_is_refused_without_repeating_it() -> None:
    with pytest.raises(ParametersError) as raised:
        encode_parameters(Parameters(({"hidden"},)))
    assert str(raised.value) == "the arguments cannot be written as msgpack: TypeError"
