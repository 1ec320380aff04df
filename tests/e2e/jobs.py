"""Jobs of a Redis queue and a pool for them: a server on an address that pods reach, and what it saw of every job."""

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from activity_worker.flows import Flow, FlowDefinition, Job, JobState, Queue
from tests import packages
from tests.cluster import probe
from tests.e2e.executions import Executions
from tests.e2e.pool import Pool
from tests.e2e.stage import RESOURCES, SHORT, SYSTEM, Stage
from tests.servers.redis import RedisServer, redis_server

PASSWORD = "hunter2"
SECRET, KEY = "shop-redis", "url"


@dataclass
class Jobs:
    """The jobs of one queue. `server` is on this machine, `host` is where pods find it."""

    server: RedisServer
    host: str
    queue: str
    ids: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The URL for pods."""
        return self.url_of(PASSWORD)

    def url_of(self, password: str, port: int | None = None) -> str:
        """Return a URL with this password, and another port if one is given."""
        return f"redis://:{password}@{self.host}:{port or self.server.port}/0"

    def add(self, count: int = 1, **work: Any) -> list[str]:
        """Make jobs with these fields, which `handler.py` knows, and their number `n`; returns their ids."""
        new = asyncio.run(self._add([{"n": len(self.ids) + n, **work} for n in range(count)]))
        self.ids += new
        return new

    def all(self) -> list[Job]:
        """Return every job as it is now."""
        return asyncio.run(self._all())

    def all_completed(self) -> bool:
        """Whether there are jobs, and each has been completed."""
        return {job.state for job in self.all()} == {JobState.COMPLETED}

    def pods(self, ids: Sequence[str]) -> set[str]:
        """Return the names of the pods that completed these jobs."""
        return {str(job.fields["pod"]) for job in self.all() if job.id in set(ids) and "pod" in job.fields}

    def taken(self) -> int:
        """Count the jobs that are under way now."""
        return int(self.server.say("LLEN", f"queue:{self.queue}:processing"))

    def seen(self) -> tuple[Counter[str], Counter[str]]:
        """Return how often each job was locked by a worker, and how often completed, as the server saw it."""
        locked: Counter[str] = Counter()
        completed: Counter[str] = Counter()
        for line in (self.server.folder / "seen").read_text().splitlines():
            words = line.partition("] ")[2].replace('"', "").split()
            if words[:1] == ["SET"] and words[1].startswith(f"lock:{self.queue}:"):
                locked[words[1].rpartition(":")[2]] += 1
            elif words[:1] == ["HSET"] and "completed-queue" in words:
                completed[words[1].rpartition(":")[2]] += 1
        return locked, completed

    def attempts(self) -> list[tuple[Any, ...]]:
        """Return what became of every job, for a person."""
        return [(job.id, job.state, job.fields) for job in self.all()]

    async def _add(self, works: list[dict[str, Any]]) -> list[str]:
        async with self._flow() as flow:
            return [await flow.create(work) for work in works]

    async def _all(self) -> list[Job]:
        async with self._flow() as flow:
            return [await flow.get(job_id) for job_id in self.ids]

    def _flow(self) -> Flow:
        return Flow.open(FlowDefinition("shop", (Queue(self.queue),)), self.server.url)


@contextmanager
def jobs(stage: Stage, queue: str) -> Iterator[Jobs]:
    """Start a server that pods reach and yield an empty queue on it; every command that it gets is noted."""
    host = stage.cluster.host_ip
    with redis_server(password=PASSWORD, appendonly=True, config={"bind": f"127.0.0.1 {host}"}) as server:
        with (server.folder / "seen").open("wb") as out:
            monitor = subprocess.Popen(
                [packages.find("redis-cli"), "-p", str(server.port), "--no-auth-warning", "monitor"],
                stdout=out,
                env={"REDISCLI_AUTH": PASSWORD},
            )
        try:
            yield Jobs(server, host, queue)
        finally:
            monitor.kill()
            monitor.wait()


@dataclass(frozen=True)
class JobPool(Pool):
    """A pool on a queue whose URL is in a Secret."""

    jobs: Jobs | None = None

    def apply(self, **spec: Any) -> None:
        """Apply it with short windows; `source` adds to the source."""
        assert self.jobs is not None
        reference = {"name": SECRET, "key": KEY}
        attributes = ["n", "seconds", "gated"]
        redis = {"urlSecretRef": reference, "flow": "shop", "queue": self.jobs.queue, "attributes": attributes}
        body = {
            "apiVersion": "activitypools.dev/v1alpha1",
            "kind": "ActivityPool",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "source": {"redis": {**redis, **spec.pop("source", {})}},
                "handlerImage": self.stage.handler,
                "podTemplate": {"spec": {"containers": [{"name": "worker", "resources": RESOURCES}]}},
                "scaling": SHORT,
                **spec,
            },
        }
        probe.apply(self.stage.cluster, body)

    def keep_url(self, url: str) -> None:
        """Put a URL into the pool's Secret."""
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": self.namespace}}
        probe.apply(self.stage.cluster, {**body, "stringData": {KEY: url}})

    def let_read(self) -> None:
        """Let the operator read that one Secret, as its condition proposes."""
        metadata = {"name": "read-shop-redis", "namespace": self.namespace}
        group = "rbac.authorization.k8s.io"
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get"]}
        subject = {"kind": "ServiceAccount", "name": "activity-operator", "namespace": SYSTEM}
        role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
            "subjects": [subject],
        }
        for each in (role, binding):
            probe.apply(self.stage.cluster, each)

    def wait_completed(self, seconds: float = 600.0) -> None:
        """Wait until every job has been completed."""
        assert self.jobs is not None
        self.wait_for("every job is completed", self.jobs.all_completed, seconds)

    def wait_taken(self, tasks: int) -> None:
        """Wait until so many jobs are under way."""
        queue = self.jobs
        assert queue is not None
        self.wait_for(f"{tasks} jobs are under way", lambda: queue.taken() >= tasks)

    def assert_each_once(self) -> None:
        """The oracle of a day without kills: every job was locked once, and completed once by whom it went to."""
        assert self.jobs is not None
        locked, completed = self.jobs.seen()
        once = Counter(dict.fromkeys(self.jobs.ids, 1))
        assert (locked, completed) == (once, once)
        assert all(json.dumps(job.fields["n"]) == json.dumps(job.fields["task"]) for job in self.jobs.all())


def job_pool(stage: Stage, namespace: str, queue: Jobs) -> JobPool:
    """Return a pool for a queue, named like it; nothing is applied yet."""
    # What a failed wait shows of executions is shown of jobs.
    return JobPool(stage, namespace, queue.queue, cast("Executions", queue), queue)
