"""Waiting for what a cluster says, on a machine that does not always answer."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from tests.cluster import ClusterError
from tests.e2e import stage
from tests.e2e.stage import wait_for

URL = "http://emulator"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing take time but the waiting itself."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(stage, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def saying(answers: Iterable[bool | Exception]) -> Callable[[], bool]:
    """Return a question that is answered like this, one time after the other."""
    left = iter(answers)

    def holds() -> bool:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return holds


@pytest.mark.parametrize(
    "failure",
    [
        ClusterError("`kubectl get` did not end within 90 s"),
        EndpointConnectionError(endpoint_url=URL),
        ConnectionClosedError(endpoint_url=URL),
        ReadTimeoutError(endpoint_url=URL),
    ],
)
def test_no_answer_is_asked_for_again(failure: Exception) -> None:
    """A machine that stalls for seconds has not broken a promise."""
    wait_for("all is well", saying([failure, True]), 60)


def test_what_never_holds_fails_and_the_last_failure_to_ask_is_told() -> None:
    """It may be the very cause."""
    answers: list[bool | Exception] = [ClusterError("connection refused"), ClusterError("forbidden"), False]
    with pytest.raises(AssertionError, match="not within 1 s: all is well; the last failure to ask: forbidden"):
        wait_for("all is well", saying(answers), 1)


def test_what_is_answered_and_does_not_hold_fails_without_more_words() -> None:
    """Nobody shall look for a failure that was none."""
    with pytest.raises(AssertionError, match=r"not within 0 s: all is well$"):
        wait_for("all is well", saying([False]), 0)


def test_what_is_wrong_with_the_question_itself_ends_the_wait_at_once() -> None:
    """A misspelt field would never hold."""
    with pytest.raises(KeyError):
        wait_for("all is well", saying([KeyError("decisions")]), 60)
