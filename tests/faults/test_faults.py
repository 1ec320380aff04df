"""Whatever befalls the operator in the midst of its work, it comes to the same end and no task or worker pays."""

import pytest

from tests.faults.bounded import JOBS
from tests.faults.campaign import Played
from tests.faults.matrix import Job


def _name(job: Job) -> str:
    return f"{job.scenario}: {' + '.join(map(str, job.faults)) or job.part}, {job.replicas} replicas"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("job", JOBS, ids=_name)
def test_it_ends_as_without_the_fault_and_nobody_is_harmed(job: Job, played: dict[Job, Played]) -> None:
    run = played[job].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == ()
    assert not run.harm.done


@pytest.mark.timeout(900)
def test_most_faults_found_their_call(played: dict[Job, Played]) -> None:
    """A run whose call did not come proves nothing; a few are spared by chance, not most."""
    struck = sum(one.run.struck for one in played.values())

    assert struck >= 0.8 * len(played)
