"""The Lease, the clocks or the network fail: one replica leads, and no task or worker is harmed."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.faults.campaign import Played, lanes
from tests.faults.conftest import selected, tell
from tests.faults.election_runs import play_elections

pytestmark = pytest.mark.timeout(900)

#: One of each kind, the longest first; `python -m tests.faults --part election` plays all.
BOUNDED = (
    "failover as shipped",
    "no report arrives",
    "born an hour ahead",
    "API down",
    "two write the Lease",
    "leader stopped",
    "leader cut off",
    "loop blocked",
    "leader an hour ahead",
)
#: A scenario mostly waits: for a Lease to expire, for a silence to be noticed.
LANES = 4


async def _play(names: Sequence[str]) -> dict[str, Played]:
    async with lanes(LANES) as where:
        return tell(await play_elections(where, names))


@pytest.fixture(scope="module")
def elections(request: pytest.FixtureRequest) -> dict[str, Played]:
    """Play the bounded election scenarios of the session's tests once."""
    return asyncio.run(_play(selected(request.session.items, "elections", "name", BOUNDED)))


@pytest.mark.parametrize("name", BOUNDED)
def test_one_leader_writes_and_no_task_or_worker_is_harmed(name: str, elections: dict[str, Played]) -> None:
    run = elections[name].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == ()


def test_other_replica_writes_within_20_s_of_leaders_death(elections: dict[str, Played]) -> None:
    (summary,) = elections["failover as shipped"].run.way

    assert "to the first write about a pool" in summary
