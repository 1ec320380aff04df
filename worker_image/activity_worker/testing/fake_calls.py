"""A call to a fake service: its operation is found by name, and its texts are checked as the service's model has it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from activity_worker.testing.fake_tasks import FakeServiceError

Parameters = dict[str, Any]
Operation = Callable[[Parameters], dict[str, Any] | Awaitable[dict[str, Any]]]


def answer_call(
    operations: Mapping[str, Operation], operation: str, parameters: Parameters, *, most_characters: Mapping[str, int]
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """Return the output, or an awaitable of it. Raises FakeServiceError.

    `most_characters` is the longest text of each parameter.
    """
    handler = operations.get(operation)
    if handler is None:
        raise FakeServiceError("UnknownOperationException", f"this fake does not know {operation!r}")
    for name, longest in most_characters.items():
        value = parameters.get(name)
        if value is not None and (not isinstance(value, str) or len(value) > longest):
            raise _invalid(f"Value at '{name}'", f"Member must have length less than or equal to {longest}")
    try:
        return handler(parameters)
    except KeyError as missing:
        raise _invalid(f"Value null at {missing}", "Member must not be null") from None


def _invalid(what: str, constraint: str) -> FakeServiceError:
    text = f"1 validation error detected: {what} failed to satisfy constraint: {constraint}"
    return FakeServiceError("ValidationException", text)
