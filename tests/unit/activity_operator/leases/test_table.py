"""The table of leases: its counters and indexes agree with its entries."""

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as some

from activity_operator.backlog.protocol import LeaseTotals
from activity_operator.leases.model import RECORD_BYTES, LeaseOwner, PoolRef, TaskLease
from activity_operator.leases.rules import LeaseEntry, choose_offers
from activity_operator.leases.table import HISTORY_SECONDS, LeaseTable
from tests.unit.activity_operator.leases.shared_state import POOL, TARGET
from tests.unit.activity_operator.reports.builders import report

POOLS = (POOL, PoolRef("media", "crop", "pool-2"))
entries = some.builds(
    lambda number, pool, age, pod, recorded, confirmed, closing, size: LeaseEntry(
        lease(number, POOLS[pool], age, pod, recorded, size), 0.0, confirmed=confirmed and bool(pod), closing=closing
    ),
    some.integers(0, 5),
    some.integers(0, 1),
    some.integers(0, 3),
    some.sampled_from(["", "uid-a", "uid-b"]),
    some.booleans(),
    some.booleans(),
    some.booleans(),
    some.integers(0, 9),
)


def lease(number: int, pool: PoolRef, age: float, pod: str = "", recorded: bool = True, size: int = 0) -> TaskLease:
    owner = LeaseOwner(pod, "first") if pod else None
    version = "1" if recorded or owner else ""
    # The id names the pool, because a lease never moves to another one.
    return TaskLease(f"{pool.uid}-{number}", pool, TARGET, "t", "x" * size, age, owner, "uid", version)


@given(some.lists(some.tuples(some.booleans(), entries), max_size=40))
def test_counters_and_indexes_agree_with_the_entries_after_any_changes(changes: list[tuple[bool, LeaseEntry]]) -> None:
    table = LeaseTable()
    model: dict[str, LeaseEntry] = {}
    for drop, entry in changes:
        name = entry.lease.id
        if drop:
            assert table.drop(name) == (model.pop(name, None) is not None)
        elif name in model:
            table.put(entry)
            model[name] = entry
        else:
            table.add(entry)
            model[name] = entry

    assert {entry.lease.id: entry for entry in table.all()} == model
    assert table.totals() == totals(model)
    for pool in POOLS:
        mine = [entry for entry in model.values() if entry.lease.pool == pool]
        waiting = [entry for entry in mine if entry.is_unclaimed and entry.lease.recorded]
        counts = table.counts(pool.key)
        assert counts.held == len(waiting)
        assert counts.unrecorded == sum(not entry.lease.recorded for entry in mine)
        assert counts.claimed == sum(entry.lease.owner is not None and not entry.confirmed for entry in mine)
        assert counts.size_bytes == sum(entry.lease.size_bytes for entry in mine)
        assert list(table.waiting(pool.key)) == sorted(waiting, key=lambda one: (one.lease.received_at, one.lease.id))
        owned = {entry.lease.id for entry in mine if entry.lease.owner == LeaseOwner("uid-a", "first")}
        assert {entry.lease.id for entry in table.owned_by(pool.key, "uid-a")} == owned


def totals(model: dict[str, LeaseEntry]) -> LeaseTotals:
    unshown = [entry for entry in model.values() if not entry.confirmed]
    size = sum(entry.lease.size_bytes for entry in model.values())
    return LeaseTotals(len(unshown), size, len({entry.lease.pool for entry in unshown}))


def test_put_leaves_out_a_lease_that_is_not_held() -> None:
    table = LeaseTable()
    table.put(LeaseEntry(lease(1, POOL, 0.0), 0.0))

    assert len(table) == 0


def test_offers_read_only_as_many_leases_as_the_worker_has_slots() -> None:
    endless = (LeaseEntry(lease(number, POOL, float(number)), 0.0) for number in count())

    chosen = choose_offers(endless, (), report(slots=4, busy=2), 0.0, cordoned=False)

    assert (len(chosen.now), len(chosen.ahead)) == (2, 2)


def test_bytes_of_an_ended_lease_count_until_etcd_is_compacted() -> None:
    now = 1000.0
    table = LeaseTable(lambda: now)
    table.add_history(lease(1, POOL, 0.0, size=9))
    assert table.totals() == LeaseTotals(0, RECORD_BYTES + 10, 0)

    now += HISTORY_SECONDS
    assert table.totals() == LeaseTotals()


def test_confirmed_lease_counts_bytes_but_no_lease() -> None:
    table = LeaseTable()
    entry = LeaseEntry(lease(1, POOL, 0.0, "uid-a", size=9), 0.0)
    table.add(entry)
    assert table.totals() == LeaseTotals(1, RECORD_BYTES + 10, 1)

    table.put(replace(entry, confirmed=True))
    assert table.totals() == LeaseTotals(0, RECORD_BYTES + 10, 0)
