# ruff: noqa: D103 - the names are the sentences
"""What a worker holds and has done."""

from activity_worker.contract import HeldLease
from activity_worker.ledger import Ledger


def test_a_concluded_task_is_not_held_but_its_slot_is_busy_until_the_handler_ends() -> None:
    ledger = Ledger(now=0.0)
    ledger.leased("a", now=1.0)
    assert ledger.held(now=4.0) == (HeldLease("a", 3.0),)

    ledger.concluded("a", "succeeded")
    assert (ledger.held(now=5.0), ledger.busy) == ((), 1)

    assert ledger.ended("a", now=6.0) == ("succeeded", 5.0)
    assert (ledger.busy, ledger.idle_seconds(now=8.0)) == (0, 2.0)


def test_the_first_word_on_a_task_counts() -> None:
    ledger = Ledger(now=0.0)
    ledger.leased("a", now=0.0)
    ledger.concluded("a", "failed")
    ledger.concluded("a", "succeeded")

    counters = ledger.counters(now=1.0)
    assert (counters.received, counters.succeeded, counters.failed) == (1, 0, 1)


def test_a_task_left_to_time_out_ends_without_a_conclusion() -> None:
    ledger = Ledger(now=0.0)
    ledger.leased("a", now=0.0)

    assert ledger.ended("a", now=2.0) == ("unconcluded", 2.0)
    assert ledger.ended("a", now=3.0) is None


def test_busy_seconds_grow_while_a_task_runs() -> None:
    ledger = Ledger(now=0.0)
    ledger.leased("a", now=0.0)
    ledger.ended("a", now=2.0)
    ledger.leased("b", now=3.0)

    assert ledger.counters(now=7.0).busy_seconds == 6.0
