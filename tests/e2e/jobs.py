"""Jobs of a Redis queue and a pool for them: a server that pods reach, and its log of every command."""

import asyncio
import json
import shlex
import subprocess
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activity_worker.flows import Flow, FlowDefinition, Job, JobState, Queue
from activity_worker.wire.redis_keys import COMPLETED_QUEUE, lock
from tests import packages
from tests.e2e.harness import RESOURCES, SHORT, ClusterHarness
from tests.e2e.secret_pool import SecretPool
from tests.e2e.timeline import PATIENCE
from tests.eventually import eventually_sync
from tests.servers.redis import RedisServer, redis_server

FLOW = "shop"
PASSWORD = "hunter2"
SECRET = "shop-redis"
LOCKED, COMPLETED = "locked", "completed"


@dataclass(frozen=True)
class JobEvent:
    """A worker locked a job, or saved its result: `kind` is LOCKED or COMPLETED.

    `at` is in Unix seconds by this machine's clock; `pod` is the pod of the worker that locked the job, else "".
    """

    at: float
    kind: str
    job: str
    pod: str = ""


@dataclass
class Jobs:
    """The jobs of one queue. `server` is on this machine, `host` is the address at which pods reach it."""

    server: RedisServer
    host: str
    queue: str
    log: Path
    ids: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The URL for pods."""
        return self.url_of(PASSWORD)

    def url_of(self, password: str, port: int | None = None) -> str:
        """Return a URL with this password, and another port if one is given."""
        return f"redis://:{password}@{self.host}:{port or self.server.port}/0"

    def add(self, count: int = 1, **work: Any) -> list[str]:
        """Create jobs with these fields, which `handler.py` knows, and their number `n`; returns their ids."""
        new = asyncio.run(self._add([{"n": len(self.ids) + n, **work} for n in range(count)]))
        self.ids += new
        return new

    def all(self) -> list[Job]:
        """Return every job as it is now."""
        return asyncio.run(self._all())

    def are_completed(self, ids: Collection[str] = ()) -> bool:
        """Whether these jobs (default: all) have been completed."""
        return all(job.state == JobState.COMPLETED for job in self.all() if job.id in (ids or self.ids))

    def history(self) -> list[JobEvent]:
        """Return every lock and every completion of a job that the server has seen, in order."""
        mark = uuid.uuid4().hex
        self.server.say("ECHO", mark)
        eventually_sync("the log has all that the server has seen", lambda: mark in self.log.read_text())
        lines = self.log.read_text().partition(mark)[0].splitlines()
        return [event for line in lines if (event := _event(line, self.queue)) is not None]

    def counts(self, kind: str) -> Counter[str]:
        """Return how often each job was locked, or completed."""
        return Counter(event.job for event in self.history() if event.kind == kind)

    def pods_of(self, ids: Collection[str]) -> set[str]:
        """Return the names of the pods that locked these jobs."""
        return {event.pod for event in self.history() if event.kind == LOCKED and event.job in ids}

    def under_way(self, at: float) -> set[str]:
        """Return the jobs that were locked and not yet completed at a time, in Unix seconds."""
        kinds = {event.job: event.kind for event in self.history() if event.at <= at}
        return {job for job, kind in kinds.items() if kind == LOCKED}

    def most_at_once(self) -> int:
        """Return the largest number of jobs that were locked at the same time."""
        running: set[str] = set()
        most = 0
        for event in self.history():
            (running.add if event.kind == LOCKED else running.discard)(event.job)
            most = max(most, len(running))
        return most

    async def _add(self, works: list[dict[str, Any]]) -> list[str]:
        async with self._flow() as flow:
            return [await flow.create(work) for work in works]

    async def _all(self) -> list[Job]:
        async with self._flow() as flow:
            return [await flow.get(job_id) for job_id in self.ids]

    def _flow(self) -> Flow:
        return Flow.open(FlowDefinition(FLOW, (Queue(self.queue),)), self.server.url)


def _event(line: str, queue: str) -> JobEvent | None:
    """Read a line of MONITOR: time, database and client, and the words of the command in quotes."""
    head, _, command = line.partition("] ")
    if not command.startswith(('"SET" ', '"HSET" ')):
        return None
    verb, key, *values = shlex.split(command)
    at, job = float(head.split()[0]), key.rpartition(":")[2]
    if verb == "SET" and key == lock(queue, job):
        # The lock's value begins with the worker's name, which begins with its pod's name.
        return JobEvent(at, LOCKED, job, values[0].partition(":")[0])
    return JobEvent(at, COMPLETED, job) if verb == "HSET" and COMPLETED_QUEUE in values else None


@contextmanager
def jobs(harness: ClusterHarness, queue: str) -> Iterator[Jobs]:
    """Start a server that pods reach and yield an empty queue on it; every command that the server gets is logged."""
    host = harness.cluster.host_ip
    with redis_server(password=PASSWORD, appendonly=True, config={"bind": f"127.0.0.1 {host}"}) as server:
        log = server.folder / "commands"
        with log.open("wb") as out:
            monitor = subprocess.Popen(
                [packages.find("redis-cli"), "-p", str(server.port), "--no-auth-warning", "monitor"],
                stdout=out,
                env={"REDISCLI_AUTH": PASSWORD},
            )
        try:
            eventually_sync("the server logs its commands", lambda: log.read_text().startswith("OK"))
            yield Jobs(server, host, queue, log)
        finally:
            monitor.kill()
            monitor.wait()


@dataclass(eq=False)
class JobPool(SecretPool):
    """A pool on a queue."""

    jobs: Jobs = field(kw_only=True)

    def apply(self, **spec: Any) -> None:
        """Apply it with short windows; `source` adds to the source."""
        attributes = ["n", "seconds", "gated"]
        redis = {"urlSecretRef": self.reference(), "flow": FLOW, "queue": self.jobs.queue, "attributes": attributes}
        self.apply_manifest(
            {
                "apiVersion": "activitypools.dev/v1alpha1",
                "kind": "ActivityPool",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {
                    "source": {"redis": {**redis, **spec.pop("source", {})}},
                    "handlerImage": self.harness.handler,
                    "podTemplate": {"spec": {"containers": [{"name": "worker", "resources": RESOURCES}]}},
                    "scaling": SHORT,
                    **spec,
                },
            }
        )

    def add(self, count: int = 1, **work: Any) -> list[str]:
        """Create jobs as `Jobs.add` does; moves the mark."""
        self.act()
        return self.jobs.add(count, **work)

    def task_story(self) -> str:
        """Return every job and every event of a job, one on each line."""
        found = [(job.id, job.state, job.fields) for job in self.jobs.all()]
        return "\n".join(map(str, [*found, *self.jobs.history()]))

    def wait_completed(self, ids: Collection[str] = (), seconds: float = PATIENCE) -> None:
        """Wait until these jobs (default: all) are completed; move the mark to that moment."""
        self.wait_source("the jobs are completed", lambda: self.jobs.are_completed(ids), seconds)
        self.mark = self.timeline.catch_up()

    def wait_running(self, count: int, seconds: float = PATIENCE) -> None:
        """Wait until `count` jobs were locked at the same time."""
        self.wait_source(f"{count} jobs are under way", lambda: self.jobs.most_at_once() >= count, seconds)

    def assert_each_once(self) -> None:
        """Assert what must hold without kills: each job was locked once, and completed once with its own result."""
        once = Counter(dict.fromkeys(self.jobs.ids, 1))
        assert (self.jobs.counts(LOCKED), self.jobs.counts(COMPLETED)) == (once, once)
        assert all(json.dumps(job.fields["n"]) == json.dumps(job.fields["task"]) for job in self.jobs.all())


def job_pool(harness: ClusterHarness, namespace: str, queue: Jobs) -> JobPool:
    """Return a pool for a queue, with the queue's name, without applying it."""
    return JobPool(harness, namespace, queue.queue, secret=SECRET, jobs=queue)
