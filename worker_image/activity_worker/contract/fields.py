"""Readers for JSON from the other side, which is not trusted: each checks type and size and names the field."""

import math
from collections.abc import Mapping
from typing import Any


class ContractError(ValueError):
    """A message from the other side does not have the agreed form; the text names the field and the value's type."""


def text(data: Mapping[str, Any], key: str, limit: int = 253) -> str:
    """Return the string at `key`, at most `limit` characters long."""
    value = data.get(key, "")
    if not isinstance(value, str) or len(value) > limit:
        raise ContractError(f"{key}: expected a string of at most {limit} characters, got {type(value).__name__}")
    return value


def count(data: Mapping[str, Any], key: str, default: int = 0, bits: int = 53) -> int:
    """Return the whole number from 0 to 2^`bits` at `key`."""
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**bits:
        raise ContractError(f"{key}: expected a count from 0 to 2^{bits}, got {type(value).__name__}")
    return value


def seconds(data: Mapping[str, Any], key: str, default: float = 0.0) -> float:
    """Return the finite number of seconds from 0 on at `key`."""
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12 or math.isnan(value):
        raise ContractError(f"{key}: expected seconds from 0 on, got {type(value).__name__}")
    return float(value)


def flag(data: Mapping[str, Any], key: str) -> bool | None:
    """Return the true or false at `key`, None where it is missing."""
    value = data.get(key)
    if value is not None and not isinstance(value, bool):
        raise ContractError(f"{key}: expected true or false, got {type(value).__name__}")
    return value


def items(data: Mapping[str, Any], key: str, limit: int) -> list[Any]:
    """Return the list at `key`, at most `limit` items long."""
    value = data.get(key, [])
    if not isinstance(value, list) or len(value) > limit:
        raise ContractError(f"{key}: expected a list of at most {limit} items")
    return value


def counts(data: Mapping[str, Any], key: str, limit: int) -> tuple[int, ...]:
    """Return the list of whole numbers at `key`, at most `limit` items long."""
    return tuple(count({key: item}, key) for item in items(data, key, limit))


def record(value: Any, what: str) -> Mapping[str, Any]:
    """Return `value` if it is an object; `what` names it in the error."""
    if not isinstance(value, Mapping):
        raise ContractError(f"{what}: expected an object, got {type(value).__name__}")
    return value


def ids(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return the lease ids at `key`."""
    found = items(data, key, 1000)
    if not all(isinstance(item, str) and len(item) <= 64 for item in found):
        raise ContractError(f"{key}: expected lease ids of at most 64 characters")
    return tuple(found)
