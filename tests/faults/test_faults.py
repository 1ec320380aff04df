"""A fault strikes the operator amid its work: the run ends in the same state, and no task or worker is harmed."""

import pytest

from tests.faults.bounded import JOBS
from tests.faults.conftest import Bounded
from tests.faults.matrix import Job
from tests.faults.rights import granted, needed

pytestmark = pytest.mark.timeout(900)


def _name(job: Job) -> str:
    return f"{job.scenario}: {' + '.join(map(str, job.faults)) or job.part}, {job.replicas} replicas"


@pytest.mark.parametrize("job", JOBS, ids=_name)
def test_run_ends_as_without_the_fault_and_harms_no_task_or_worker(job: Job, campaign: Bounded) -> None:
    run = campaign.played[job].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == (), run.log
    assert not run.harm.done


@pytest.mark.parametrize("job", [job for job in JOBS if job.part not in {"event", "stale"}], ids=_name)
def test_without_the_fault_the_call_is_made(job: Job, campaign: Bounded) -> None:
    """A crash around a call that the run without faults does not make would prove nothing.

    A job's second fault may strike a call of the recovery, which that run does not make.
    """
    calls, fault = campaign.references[job.scenario].calls, job.faults[0]

    assert calls.count(fault.name) >= fault.nth, calls


def test_operator_makes_only_calls_that_the_chart_allows(campaign: Bounded) -> None:
    """Here the operator may do everything, so a call without the right would only fail in a cluster."""
    runs = [*campaign.references.values(), *(one.run for one in campaign.played.values())]
    made = needed(name for run in runs for name in (*run.calls, *run.reads))

    assert {("deployments", "patch"), ("pods", "list")} <= made
    assert made - granted() == set()


def test_most_faults_found_their_call(campaign: Bounded) -> None:
    """Watches and reports race, so a few faults miss their call; most must strike."""
    struck = sum(one.run.struck for one in campaign.played.values())

    assert struck >= 0.8 * len(campaign.played)
