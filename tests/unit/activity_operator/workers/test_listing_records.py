"""Until a new leader has listed the records nobody heartbeats the tasks that wait: a LIST that hangs is given up."""

import asyncio
from typing import Any

import pytest

from activity_operator.cluster.kinds import Kind, Raws
from activity_operator.cluster.lease_records import LIST_MOST_SECONDS, LIST_SECONDS, LeaseSecrets
from activity_operator.workers.leases import RecordsUnavailableError
from tests.unit.activity_operator.virtual_time import elapsed


class Slow:
    """An API server whose LIST takes so many seconds."""

    def __init__(self, takes: float) -> None:
        self.takes = takes

    async def list(self, kind: Kind, namespace: str = "", label_selector: str = "") -> tuple[Raws, str]:
        await asyncio.sleep(self.takes)
        return [], "1"


def records(api: Any) -> LeaseSecrets:
    return LeaseSecrets(api, "activitypool-system")


async def test_a_list_on_a_connection_that_hangs_is_given_up_and_asked_for_again_on_another() -> None:
    api = Slow(takes=3600.0)
    asked = records(api)
    with pytest.raises(RecordsUnavailableError, match="no answer to a LIST within 5 s"):
        await asked.list()
    assert elapsed() == LIST_SECONDS

    api.takes = 0.1
    assert await asked.list() == ()


async def test_a_list_that_is_long_has_its_time_at_last_and_from_then_on() -> None:
    asked = records(Slow(takes=18.0))
    for _ in range(2):
        with pytest.raises(RecordsUnavailableError):
            await asked.list()

    assert await asked.list() == await asked.list() == ()
    assert elapsed() == 5.0 + 10.0 + 18.0 + 18.0


async def test_patience_has_an_end() -> None:
    asked = records(Slow(takes=3600.0))
    for _ in range(6):
        with pytest.raises(RecordsUnavailableError):
            await asked.list()

    assert elapsed() == 5.0 + 10.0 + 20.0 + 40.0 + 2 * LIST_MOST_SECONDS
