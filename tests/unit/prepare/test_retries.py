"""Which failures are retried, and how often."""

import pytest

from tests.cluster import ClusterError
from tests.prepare.retries import retried

AT_ONCE = (0.0, 0.0)


class Action:
    """Raises these errors one after the other, then succeeds."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        """Fail or succeed."""
        self.calls += 1
        if self.errors:
            raise ClusterError(self.errors.pop(0))
        return "done"


@pytest.mark.parametrize(
    "error",
    [
        "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 12 (apt-get)",
        "E: Failed to fetch http://example.invalid/a.deb  503  Service Unavailable",
        "Temporary failure resolving 'example.invalid'",
        "dial tcp: lookup example.invalid: no such host",
        "npm error code ECONNRESET",
    ],
)
def test_network_and_lock_failures_are_retried(error: str) -> None:
    action = Action(error, error)

    assert retried("it", action, waits_seconds=AT_ONCE) == "done"
    assert action.calls == 3


def test_number_of_attempts_is_limited() -> None:
    action = Action(*["connection reset by peer"] * 5)

    with pytest.raises(ClusterError, match="reset"):
        retried("it", action, waits_seconds=AT_ONCE)
    assert action.calls == 3


def test_other_failure_is_not_retried() -> None:
    action = Action("E: Unable to locate package nothing")

    with pytest.raises(ClusterError, match="locate"):
        retried("it", action, waits_seconds=AT_ONCE)
    assert action.calls == 1
