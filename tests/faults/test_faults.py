"""Whatever befalls the operator in the midst of its work, it comes to the same end, and no task or worker pays."""

import pytest

from tests.faults.bounded import JOBS
from tests.faults.conftest import Bounded
from tests.faults.matrix import Job
from tests.faults.rights import granted, needed

pytestmark = pytest.mark.timeout(900)


def _name(job: Job) -> str:
    return f"{job.scenario}: {' + '.join(map(str, job.faults)) or job.part}, {job.replicas} replicas"


@pytest.mark.parametrize("job", JOBS, ids=_name)
def test_it_ends_as_without_the_fault_and_nobody_is_harmed(job: Job, campaign: Bounded) -> None:
    run = campaign.played[job].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == (), run.log
    assert not run.harm.done


@pytest.mark.parametrize("job", [job for job in JOBS if job.part not in {"event", "stale"}], ids=_name)
def test_without_the_fault_the_call_is_made(job: Job, campaign: Bounded) -> None:
    """A crash around a call that nobody makes any more would prove nothing. A second one may be of the recovery."""
    calls, fault = campaign.references[job.scenario].calls, job.faults[0]

    assert calls.count(fault.name) >= fault.nth, calls


def test_the_operator_does_nothing_that_the_chart_does_not_let_it_do(campaign: Bounded) -> None:
    """Here it may do everything, so that a call without the right to it would be missed in a cluster only."""
    runs = [*campaign.references.values(), *(one.run for one in campaign.played.values())]
    made = needed(name for run in runs for name in (*run.calls, *run.reads))

    assert {("deployments", "patch"), ("pods", "list")} <= made
    assert made - granted() == set()


def test_most_faults_found_their_call(campaign: Bounded) -> None:
    """A few are spared, because watches and reports race; not most."""
    struck = sum(one.run.struck for one in campaign.played.values())

    assert struck >= 0.8 * len(campaign.played)
