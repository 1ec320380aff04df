"""PURE: a task's arguments as the bytes that travel: msgpack, compressed with zstd when they are large."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
import zstandard

#: The header that names the compression, and its only known value.
COMPRESSION_HEADER: Final = "compression-type"
ZSTD: Final = "zstd"
#: Arguments of more bytes than this are compressed, as the published client does.
COMPRESS_ABOVE_BYTES: Final = 3_000_000
#: The most bytes that compressed arguments may unpack to.
MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024


class ParametersError(ValueError):
    """The arguments cannot be read or written; the message does not repeat them."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a task's function is called with."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EncodedParameters:
    """The bytes of arguments, and the headers that say how to read them."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def encode_parameters(parameters: Parameters) -> EncodedParameters:
    """Return the bytes of arguments. Raises ParametersError for a value that msgpack does not know."""
    try:
        data = msgpack.packb({"args": list(parameters.args), "kwargs": dict(parameters.kwargs)})
    except (TypeError, ValueError, OverflowError) as error:
        raise ParametersError(f"the arguments cannot be written as msgpack: {type(error).__name__}") from None
    if len(data) <= COMPRESS_ABOVE_BYTES:
        return EncodedParameters(data)
    return EncodedParameters(zstandard.ZstdCompressor().compress(data), {COMPRESSION_HEADER: ZSTD})


def decode_parameters(data: bytes, headers: Mapping[str, str], deprecated_json: str = "") -> Parameters:
    """Return the arguments. `deprecated_json` is the field `parameters`, read where there are no bytes.

    Neither bytes nor text is a call without arguments. Raises ParametersError.
    """
    if not data:
        return _parameters(_from_json(deprecated_json)) if deprecated_json else Parameters()
    if (kind := headers.get(COMPRESSION_HEADER)) == ZSTD:
        data = _decompressed(data)
    elif kind:
        raise ParametersError(f"the header {COMPRESSION_HEADER} is none of: {ZSTD}")
    try:
        found = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ParametersError(f"the arguments cannot be read as msgpack: {type(error).__name__}") from None
    return _parameters(found)


def _parameters(found: Any) -> Parameters:
    if not isinstance(found, dict):
        raise ParametersError("the arguments are not a map with args and kwargs")
    args, kwargs = found.get("args", []), found.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ParametersError("args is not a list, or kwargs is not a map from names")
    return Parameters(tuple(args), kwargs)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParametersError(f"the arguments cannot be read as JSON: {type(error).__name__}") from None


def _decompressed(data: bytes) -> bytes:
    """Unpack in pieces: the frame's own size cannot be trusted, and a small frame may hold gigabytes."""
    unpacked = bytearray()
    try:
        for piece in zstandard.ZstdDecompressor().read_to_iter(data):
            unpacked += piece
            if len(unpacked) > MAX_UNPACKED_BYTES:
                raise ParametersError(f"the arguments unpack to more than {MAX_UNPACKED_BYTES} bytes")
    except zstandard.ZstdError as error:
        raise ParametersError(f"the arguments cannot be read as zstd: {type(error).__name__}") from None
    return bytes(unpacked)
