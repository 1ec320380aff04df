"""PURE: the processes of a run, which of them may start now, and their results."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.servers.ports import PORTS
from tests.suites.catalogue import Suite
from tests.suites.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Job:
    """One process: a suite's pytest, or a step between suites.

    `arguments` follow the Python interpreter. `environment` is added to the runner's own. `is_suite` is False for a
    step such as booting the cluster. `required`: when it fails, the later jobs of the cluster's lane do not run.
    """

    name: str
    arguments: tuple[str, ...]
    cluster: bool = False
    weight: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    is_suite: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job.

    `code` is the exit code, 128 and the signal's number after a signal. `seconds` is wall time. `cpu_seconds` is the
    processor time of the process and of all descendants that their parents waited for: servers that a test starts are
    in it, detached ones such as the cluster's daemons are not.
    """

    job: Job
    code: int
    seconds: float
    cpu_seconds: float
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def waiting(self) -> float:
        """The share of the wall time in which the job used no processor, 0 to 1; 0 for a job that filled a core."""
        return max(0.0, 1 - self.cpu_seconds / self.seconds) if self.seconds else 0.0


CLUSTER_DOWN = Job("cluster down", ("-m", "tests.cluster", "down"), cluster=True)
CLUSTER_UP = Job("cluster up", ("-m", "tests.cluster", "up"), cluster=True, required=True)


def jobs_of(suites: Sequence[Suite]) -> list[Job]:
    """Return the jobs that run these suites.

    Each suite has ports of its own. The suites of the cluster's lane start on an empty cluster, which is stopped
    after the last of them.
    """
    each = len(PORTS) // max(1, len(suites))
    jobs = [_job(suite, PORTS[number * each : (number + 1) * each]) for number, suite in enumerate(suites)]
    if not any(job.cluster for job in jobs):
        return jobs
    return [CLUSTER_DOWN, CLUSTER_UP, *jobs, CLUSTER_DOWN]


def may_start(waiting: Sequence[Job], running: Collection[Job], lanes: int) -> list[Job]:
    """Return the waiting jobs that may start beside the running ones.

    The cluster's lane runs one job at a time, in order. The other jobs share `lanes`, and the cluster's lane too when
    no job of the cluster is left. A job whose weight exceeds what is free waits, and a later one may overtake it. A
    job heavier than all lanes runs when they are empty.
    """
    lanes += not any(job.cluster for job in (*waiting, *running))
    chosen: list[Job] = []
    cluster_free = not any(job.cluster for job in running)
    free = lanes - sum(job.weight for job in running if not job.cluster)
    for job in waiting:
        if job.cluster and cluster_free:
            cluster_free = False
            chosen.append(job)
        elif not job.cluster and min(job.weight, lanes) <= free:
            free -= min(job.weight, lanes)
            chosen.append(job)
    return chosen


def _job(suite: Suite, ports: range) -> Job:
    environment = {"ACTIVITYPOOL_TEST_PORTS": f"{ports.start}-{ports.stop}"}
    if suite.cluster:
        # The crash suite restarts the cluster, which only the cluster's owner may allow: this run is its owner.
        environment["ACTIVITYPOOL_CLUSTER_MAY_RESTART"] = "1"
    if suite.keeps:
        environment["KEEP"] = "1"
    return Job(
        suite.name,
        ("-m", "pytest", *suite.arguments),
        cluster=suite.cluster,
        weight=suite.weight,
        environment=environment,
        is_suite=True,
    )
