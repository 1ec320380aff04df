"""When silence is attributed to the report path of a namespace, a node or the whole operator, not to the workers."""

from collections.abc import Iterator
from itertools import count

import pytest

from activity_operator.core.observation import WorkerFacts
from activity_operator.reports.report_path import (
    Outage,
    PlacedWorker,
    Scope,
    Silence,
    find_outages,
    new_term_problem,
    silence,
)
from activity_worker.contract import WorkerState

SERIAL = count()


def workers(
    number: int,
    namespace: str = "media",
    *,
    node: str = "",
    silent_since: float | None = None,
    ended: float | None = None,
) -> Iterator[PlacedWorker]:
    """Return workers whose silences begin 0.1 s apart; without `silent_since` they report."""
    for one in range(number):
        found = None if silent_since is None else Silence(silent_since + one / 10, 1.0, ended)
        yield PlacedWorker(f"uid-{next(SERIAL)}", namespace, node, found)


def named(*groups: Iterator[PlacedWorker]) -> list[tuple[Scope, str, int, int]]:
    """Return scope, name and numbers of the outages."""
    found = find_outages([worker for group in groups for worker in group])
    return [(one.scope, one.name, one.silent, one.workers) for one in found]


def facts(reported_at: float, interval: float = 1.0, state: WorkerState = WorkerState.RUNNING) -> WorkerFacts:
    return WorkerFacts("uid", "first", state, 1, 0, 1, 0.0, reported_at, interval)


def test_silence_begins_after_three_report_intervals() -> None:
    assert silence(facts(100.0), 114.9) is None
    assert silence(facts(100.0), 115.0) == Silence(100.0, 1.0)
    assert silence(facts(100.0, interval=50.0), 249.0) is None
    assert silence(facts(100.0, interval=50.0), 250.0) is not None
    assert silence(facts(100.0, state=WorkerState.STOPPED), 900.0) is None


def test_silent_majority_of_a_namespace_is_that_namespaces_outage() -> None:
    assert named(workers(60, "big", silent_since=100.0), workers(50, "small")) == [(Scope.NAMESPACE, "big", 60, 60)]


def test_silence_of_half_the_workers_is_attributed_to_them() -> None:
    assert named(workers(3, silent_since=100.0), workers(3)) == []
    assert named(workers(3, silent_since=100.0), workers(2)) == [(Scope.NAMESPACE, "media", 3, 5)]


def test_silence_of_two_workers_is_attributed_to_them() -> None:
    assert named(workers(2, silent_since=100.0)) == []


def test_silence_that_begins_at_different_times_is_attributed_to_workers() -> None:
    assert named(*(workers(1, silent_since=100.0 + 300.0 * number) for number in range(9))) == []


@pytest.mark.parametrize(("healthy", "everywhere"), [(1, True), (2, True), (3, False)])
def test_outage_is_everywhere_only_if_most_namespaces_are_silent(healthy: int, everywhere: bool) -> None:
    silent = [workers(4, f"silent-{number}", silent_since=100.0) for number in range(3)]
    found = named(*silent, *(workers(2, f"healthy-{number}") for number in range(healthy)))

    assert ((Scope.EVERYWHERE, "", 12, 12 + 2 * healthy) in found) == everywhere
    assert sum(scope is Scope.NAMESPACE for scope, *_ in found) == 3


def test_many_small_silent_namespaces_do_not_outvote_most_workers() -> None:
    small = [workers(2, f"small-{number}", silent_since=100.0) for number in range(5)]

    assert named(*small, workers(90, "large")) == []


def test_silent_majority_of_a_node_is_that_nodes_outage() -> None:
    found = named(
        workers(2, "a", node="n1", silent_since=100.0),
        workers(2, "b", node="n1", silent_since=100.5),
        workers(8, "a", node="n2"),
        workers(8, "b", node="n2"),
    )

    assert found == [(Scope.NODE, "n1", 4, 4)]


def test_one_tenants_silence_is_no_outage_of_a_node_with_others() -> None:
    silent = [workers(6, "big", node=node, silent_since=100.0) for node in ("n1", "n2")]

    assert named(*silent, workers(2, "small", node="n1"), workers(2, "small", node="n2")) == [
        (Scope.NAMESPACE, "big", 12, 12)
    ]


def test_workers_that_were_silent_before_neither_hide_nor_make_an_outage() -> None:
    """They are lost; the outage is judged by the workers that reported when it began."""
    long_lost = [workers(1, silent_since=100.0 * number) for number in range(1, 10)]

    assert named(*long_lost, workers(4, silent_since=5000.0), workers(2)) == [(Scope.NAMESPACE, "media", 4, 6)]
    assert named(*long_lost, workers(2)) == []


def test_second_outage_is_found_beside_a_lasting_one() -> None:
    found = find_outages([*workers(60, silent_since=100.0), *workers(40, silent_since=5000.0), *workers(10)])

    assert [(one.silent, one.workers, one.since) for one in found] == [(60, 110, 100.0), (40, 50, 5000.0)]


def test_outage_lasts_while_workers_return_one_by_one() -> None:
    returned = list(workers(3, silent_since=100.4, ended=199.0))

    assert named(iter(returned), workers(2, silent_since=100.0)) == [(Scope.NAMESPACE, "media", 5, 5)]
    assert named(iter(returned)) == [], "no worker is silent any more"


def test_outage_names_its_scope_and_where_to_look() -> None:
    def sentence(scope: Scope, name: str) -> str:
        return str(Outage(scope, name, 0.0, 3, 4, frozenset()))

    assert "3 of 4 workers of namespace team-a fell silent" in sentence(Scope.NAMESPACE, "team-a")
    assert sentence(Scope.NAMESPACE, "team-a").endswith("ConfigMap activitypool-ca of namespace team-a")
    assert sentence(Scope.NODE, "n1").endswith("check the network of node n1")
    assert sentence(Scope.EVERYWHERE, "").endswith("check the report Service and its certificate")


def test_outage_ends_after_two_stalled_deadlines() -> None:
    outage = Outage(Scope.NAMESPACE, "media", 100.0, 3, 3, frozenset())

    assert outage.lasts(699.0, 300.0)
    assert not outage.lasts(700.0, 300.0)


def test_many_scattered_silences_take_no_quadratic_time() -> None:
    scattered = [worker for number in range(20_000) for worker in workers(1, "big", silent_since=number * 20.0)]

    assert find_outages([*scattered, *workers(100, "small")]) == ()


def test_new_term_degrades_the_report_path_for_two_intervals() -> None:
    assert "has led for less than 20 s" in new_term_problem(119.0, 100.0, 10.0, expected_workers=3)
    assert not new_term_problem(120.0, 100.0, 10.0, expected_workers=3)


def test_new_term_without_workers_does_not_degrade_the_report_path() -> None:
    assert not new_term_problem(100.1, 100.0, 1.0, expected_workers=0)
