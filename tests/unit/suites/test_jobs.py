"""Scheduling of suites: parallel, except those that share the cluster; each suite has its own ports."""

import pytest

from tests.servers.ports import PORTS
from tests.suites.catalogue import SUITES, Suite, named
from tests.suites.jobs import CLUSTER_DOWN, CLUSTER_UP, Job, jobs_of, may_start

ANY = Job("any", ())
ON_CLUSTER = Job("on cluster", (), cluster=True)


def ports_of(job: Job) -> range:
    return range(*map(int, job.environment["ACTIVITYPOOL_TEST_PORTS"].split("-")))


def test_cluster_lane_boots_first_and_stops_last() -> None:
    jobs = jobs_of([Suite("a", ("x",)), Suite("b", ("y",), cluster=True)])

    assert [job.name for job in jobs if job.cluster] == ["cluster down", "cluster up", "b", "cluster down"]


def test_cluster_is_not_started_without_a_suite_that_uses_it() -> None:
    assert [job.name for job in jobs_of([Suite("a", ("x",))])] == ["a"]


def test_no_two_suites_share_a_port() -> None:
    ranges = [ports_of(job) for job in jobs_of(SUITES) if job.is_suite]

    assert sum(map(len, ranges)) == len(set().union(*ranges))
    assert min(map(len, ranges)) >= 500


def test_only_suites_of_the_cluster_lane_may_restart_the_cluster() -> None:
    for job in jobs_of(SUITES):
        assert (job.environment.get("ACTIVITYPOOL_CLUSTER_MAY_RESTART") == "1") == (job.cluster and job.is_suite)


@pytest.mark.parametrize(
    ("waiting", "running", "starts"),
    [
        ([CLUSTER_DOWN, CLUSTER_UP, ANY], [], [CLUSTER_DOWN, ANY]),
        ([CLUSTER_UP], [ON_CLUSTER], []),
        ([ANY, ANY, ANY, ANY], [], [ANY, ANY, ANY]),
        ([ANY, ANY, ANY], [ON_CLUSTER], [ANY, ANY]),
        ([ANY], [ANY, ANY], [ANY]),
        ([ANY], [ANY, ANY, ON_CLUSTER], []),
        ([ANY, ON_CLUSTER], [ANY, ANY], [ON_CLUSTER]),
        ([ANY], [ANY, ON_CLUSTER], [ANY]),
        ([Job("heavy", (), weight=2), ANY], [ANY, ON_CLUSTER], [ANY]),
        ([Job("too heavy", (), weight=9)], [], [Job("too heavy", (), weight=9)]),
    ],
)
def test_jobs_start_as_lanes_become_free(waiting: list[Job], running: list[Job], starts: list[Job]) -> None:
    assert may_start(waiting, running, lanes=2) == starts


def test_unknown_suite_is_an_error_that_lists_the_known_ones() -> None:
    assert [suite.name for suite in named(["crash", "unit"])] == ["unit", "crash"]
    with pytest.raises(ValueError, match="no such suite: units; the suites are unit, "):
        named(["units"])


def test_no_suite_has_a_port_that_a_service_of_the_cluster_may_have() -> None:
    """At the cluster's address kube-proxy sends connections to a NodePort (30000-32767) to its Service."""
    assert PORTS.stop <= 30_000
