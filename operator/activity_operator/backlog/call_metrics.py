"""Reports each call to a task service to an observer: the operation, its outcome, and its duration."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from activity_operator.backlog.protocol import SourceProblemError
from activity_worker.wire.errors import EndpointUnreachableError, WireError

_NO_ANSWER = 0
_OUTCOMES = {"AccessDenied": "denied", "BackendUnreachable": "unreachable"}


class CallObserver(Protocol):
    """A callback for each call that ends: `code` is the HTTP status, or 0 without an answer; `outcome` is one word."""

    def __call__(self, operation: str, code: int, outcome: str, seconds: float) -> None:
        """Record the call; must not raise."""
        ...


def ignore_call(operation: str, code: int, outcome: str, seconds: float) -> None:
    """Do nothing: the default observer."""


@contextmanager
def observe_call(observed: CallObserver, operation: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Report the call in the block, with the time to load credentials; a cancelled call is not reported."""
    began = clock()
    try:
        yield
    except WireError as error:
        observed(operation, error.status or _NO_ANSWER, outcome_of(error), clock() - began)
        raise
    observed(operation, 200, "ok", clock() - began)


@contextmanager
def observe_count(
    observed: CallObserver, operation: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Report the call in the block for a server without HTTP statuses: 200 stands for an answer."""
    began = clock()
    try:
        yield
    except SourceProblemError as error:
        observed(operation, _NO_ANSWER, _OUTCOMES.get(error.reason, "refused"), clock() - began)
        raise
    observed(operation, 200, "ok", clock() - began)


def outcome_of(error: WireError) -> str:
    """Return how a call failed, as one of six words that are the same for all services."""
    if error.throttled:
        return "throttled"
    if error.denied:
        return "denied"
    if error.missing:
        return "missing"
    if isinstance(error, EndpointUnreachableError):
        return "unreachable"
    return "failed" if error.status >= 500 else "refused"
