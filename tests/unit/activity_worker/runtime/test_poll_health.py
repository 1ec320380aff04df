"""Failed polls are evidence about a source for as long as further polls follow them."""

import asyncio

import pytest

from activity_worker.errors import DeniedError, ThrottledError, UnreachableError
from activity_worker.runtime.options import Polling
from activity_worker.runtime.poll_health import PollHealth
from tests.unit.activity_worker.runtime.recorded_worker import RecordedWorker, double

REFUSED = DeniedError("AccessDeniedException")
DOWN = UnreachableError("ConnectError")


def health_after(*errors: Exception) -> PollHealth:
    """Return the health of a slot whose last polls failed with these errors; the last one ended at 0."""
    health = PollHealth(Polling.forever())
    for before, error in zip(range(-len(errors), 0), errors, strict=True):
        health.begin(float(before))
        health.end(before + 1.0)
        health.fail(error)
    return health


@pytest.mark.parametrize("errors", [(REFUSED,) * 2, (DOWN,) * 2, (ThrottledError("Throttling"),) * 5])
def test_trouble_is_too_old_once_the_next_poll_is_overdue(errors: tuple[Exception, ...]) -> None:
    health = health_after(*errors)

    assert health.trouble(35.0) is errors[0]
    assert health.trouble(36.0) is None


def test_trouble_lasts_while_an_unanswered_poll_is_open() -> None:
    health = health_after(DOWN, DOWN)
    health.begin(20.0)

    assert health.trouble(70.0) is DOWN


def test_one_failure_after_a_long_rest_is_no_trouble() -> None:
    health = health_after(REFUSED, REFUSED)
    health.begin(3600.0)
    health.end(3600.5)

    assert health.fail(REFUSED).attempts == 1
    assert health.trouble(3601.0) is None


async def test_slot_that_stands_by_after_failed_polls_reports_no_old_trouble() -> None:
    recorded = RecordedWorker(double, polling=Polling.forever())
    slot = recorded.worker
    recorded.source.refuse("lease", *[REFUSED] * 2)
    slot.events.on("polling:error", lambda _, failure: setattr(slot, "stands_by", failure.attempts == 2))
    await slot.start()
    await asyncio.sleep(5.0)
    loop = asyncio.get_running_loop()
    assert slot.poller.trouble(loop.time()) is REFUSED
    await asyncio.sleep(60.0)

    assert slot.poller.trouble(loop.time()) is None
    await slot.stop()
