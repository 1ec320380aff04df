"""Every call to a task service, told to whoever counts: what was asked, how it ended, how long it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from activity_operator.backlog.protocol import SourceProblemError
from activity_worker.wire.errors import EndpointUnreachableError, WireError

_NO_ANSWER = 0
_OUTCOMES = {"AccessDenied": "denied", "BackendUnreachable": "unreachable"}


class CallObserver(Protocol):
    """Told of a call that ended. `code` is the HTTP status, 0 when no answer came; `outcome` one of a small set."""

    def __call__(self, operation: str, code: int, outcome: str, seconds: float) -> None:
        """Take it in; must not fail."""
        ...


def ignore_call(operation: str, code: int, outcome: str, seconds: float) -> None:
    """Tell nobody."""


@contextmanager
def observe_call(observed: CallObserver, operation: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Tell of the call in the block: credentials looked up for it count, a cancelled one does not."""
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
    """Tell of the call in the block to a server that may speak no HTTP: 200 stands for an answer."""
    began = clock()
    try:
        yield
    except SourceProblemError as error:
        observed(operation, _NO_ANSWER, _OUTCOMES.get(error.reason, "refused"), clock() - began)
        raise
    observed(operation, 200, "ok", clock() - began)


def outcome_of(error: WireError) -> str:
    """Return how a call failed, in one of six words, whatever the service called it."""
    if error.throttled:
        return "throttled"
    if error.denied:
        return "denied"
    if error.missing:
        return "missing"
    if isinstance(error, EndpointUnreachableError):
        return "unreachable"
    return "failed" if error.status >= 500 else "refused"
