"""The load of each pool of a soak, against its capacity."""

import random

import pytest

from tests.soak.pools import POOLS, Pool, arrivals

HOURS = 10


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_a_pool_has_room_for_its_load_and_for_faults(pool: Pool) -> None:
    """At 88 % of its capacity `zero-long` had a queue of five minutes after half an hour of faults."""
    generator = random.Random(7)
    arriving = arrivals(pool, generator)
    passed = worked = 0.0
    while passed < HOURS * 3600.0:
        arrival = next(arriving)
        passed += arrival.wait
        worked += sum(seconds * (1 + fails) for seconds, fails in arrival.tasks)

    slots = pool.spec["maxWorkers"] * pool.spec.get("slotsPerWorker", 1)
    assert worked / passed / slots < 0.7
