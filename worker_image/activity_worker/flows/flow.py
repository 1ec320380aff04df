"""The `Flow`: makes jobs, finds them again, and says what became of them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from activity_worker.flows import scripts
from activity_worker.flows.definition import FlowDefinition, FlowError, lookup_key
from activity_worker.flows.job import Job, JobSnapshot, JobState, child_of, job_of
from activity_worker.flows.job_ids import uuid7
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import Command, RedisClient, open_client
from activity_worker.wire.redis_errors import RedisError

#: How often `wait` looks by default, in seconds.
LOOK_SECONDS = 0.1
_CORRELATION = "correlationId"


class Flow:
    """One flow on one server. Use it as a context, or `close` it. Every call may raise `RedisError`."""

    def __init__(self, definition: FlowDefinition, client: RedisClient) -> None:
        self.definition = definition
        self.client = client

    @classmethod
    def open(cls, definition: FlowDefinition, url: str) -> Self:
        """Return the flow on the server of this URL; connects with the first call. Raises `RedisUrlError`."""
        return cls(definition, open_client(url))

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def create(self, fields: Mapping[str, Any], *, correlation_id: str | None = None) -> str:
        """Make a job with these fields, which wait in the first queue; returns its id.

        All or nothing is made. Raises `FlowError` for fields that are not JSON, and for none at all.
        """
        flow = self.definition
        values = {**fields} if correlation_id is None else {**fields, _CORRELATION: correlation_id}
        if not values:
            raise FlowError(f"flow {flow.name}: fields: none: a job needs at least one")
        job_id = uuid7()
        key = keys.job(flow.name, job_id)
        commands: list[Command] = [("HSET", key, *_pairs(flow.name, values)), ("EXPIRE", key, flow.keep_seconds)]
        for lookup in flow.lookups(fields):
            commands += [("RPUSH", lookup, job_id), ("EXPIRE", lookup, flow.keep_seconds)]
        commands.append(("RPUSH", keys.waiting(flow.queues[0].name), job_id))
        await self.client.transaction(commands)
        return job_id

    async def get(self, job_id: str, *, children: bool = False) -> Job:
        """Return a job as it is now, with its `children` when asked; one that is not there is `MISSING`."""
        return (await self._look(self.definition.name, [job_id], children=children))[0]

    async def find(self, attribute: str, value: str | float, *, children: bool = False) -> list[Job]:
        """Return the jobs that were made with this value, or with a list that has it, the oldest first.

        Those that are no longer kept are not among them.
        """
        if attribute not in self.definition.lookup:
            known = ", ".join(self.definition.lookup) or "none"
            raise FlowError(f"flow {self.definition.name}: {attribute!r}: not looked up by; lookup: {known}")
        stored = await self.client.call("LRANGE", lookup_key(self.definition.name, attribute, value), 0, -1)
        ids: list[str] = stored
        found = await self._look(self.definition.name, ids, children=children)
        return [job for job in found if job.fields]

    async def wait(self, job_id: str, *, timeout_seconds: float, look_seconds: float = LOOK_SECONDS) -> Job:
        """Look until nothing more will happen to the job, and return it; a server that is away is asked again.

        Raises `TimeoutError`, and `RedisError` for what does not pass by itself.
        """
        trouble: RedisError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    try:
                        if await self._settled(job_id) and (job := await self.get(job_id)).finished:
                            return job
                        trouble = None
                    except RedisError as error:
                        if not error.retryable:
                            raise
                        trouble = error
                    await asyncio.sleep(look_seconds)
        except TimeoutError:
            problem = f"job {job_id} of flow {self.definition.name}: not finished in {timeout_seconds:g} s"
            raise TimeoutError(f"{problem}; {trouble}" if trouble else problem) from trouble

    async def delete(self, job_id: str) -> bool:
        """Delete a job wherever it is, with its place in queues and look-up lists; tells whether it was there.

        A worker that has it goes on, and cannot complete it.
        """
        name = self.definition.name
        job = await self.get(job_id)
        commands: list[Command] = [("DEL", keys.job(name, job_id))]
        for queue in self.definition.queues:
            commands += [("LREM", key(queue.name), 0, job_id) for key in (keys.waiting, keys.processing)]
            commands.append(("DEL", keys.lock(queue.name, job_id)))
        commands += [("LREM", lookup, 1, job_id) for lookup in self.definition.lookups(job.fields)]
        deleted = await self.client.transaction(commands)
        return bool(deleted[0])

    async def retry(self, job_id: str, *, queue: str | None = None) -> str:
        """Let a failed job wait again in `queue`, the one where it failed; returns the queue's name.

        Raises `FlowError` when it has not failed, another caller tried it again, or the queue is not known.
        """
        job = await self.get(job_id)
        if job.state is not JobState.FAILED:
            raise FlowError(f"job {job_id}: is {job.state}: only a failed job is tried again")
        if not (name := queue or job.queue):
            raise FlowError(f"job {job_id}: does not say in which queue it failed: name one")
        flow_queue = self.definition.flow_queue(name)
        if not await scripts.retry(self.client, flow_queue.flow, flow_queue.name, job_id):
            raise FlowError(f"job {job_id}: was tried again by another caller just now")
        return flow_queue.name

    async def lengths(self, queues: Sequence[str] = ()) -> dict[str, tuple[int, int]]:
        """Return how many jobs wait in each of `queues` (all, children's too), and how many are under way."""
        names = list(queues) or [flow_queue.name for flow_queue in self.definition.flow_queues()]
        commands = [("LLEN", key(name)) for name in names for key in (keys.waiting, keys.processing)]
        counts = await self.client.pipeline(commands)
        return {name: (counts[2 * n], counts[2 * n + 1]) for n, name in enumerate(names)}

    async def _settled(self, job_id: str) -> bool:
        """Tell by the hash alone, which costs little, whether it is worth a look at the lists."""
        key = keys.job(self.definition.name, job_id)
        completed, failed, exists = await self.client.pipeline(
            [("HGET", key, keys.COMPLETED_QUEUE), ("HGET", key, keys.FAILED), ("EXISTS", key)]
        )
        return completed is not None or failed is not None or not exists

    async def _look(self, flow: str, job_ids: Sequence[str], *, children: bool) -> list[Job]:
        """Return the jobs of a flow as they are at one moment each."""
        names = self._queues_of(flow)
        lists = [key(name) for name in names for key in (keys.waiting, keys.processing)]
        found: list[Job] = []
        for job_id in job_ids:
            answers = await self.client.transaction(
                [("HGETALL", keys.job(flow, job_id)), *(("LPOS", key, job_id) for key in lists)]
            )
            found.append(job_of(flow, job_id, _job_snapshot(answers, names)))
        if children:
            found = [await self._with_children(job) for job in found]
        return found

    async def _with_children(self, job: Job) -> Job:
        children: list[Job] = []
        for key in job.child_keys():
            flow, job_id = child_of(key)
            children += await self._look(flow, [job_id], children=True)
        return Job(job.id, job.flow, job.state, job.queue, job.fields, job.failure, tuple(children))

    def _queues_of(self, flow: str) -> list[str]:
        return [flow_queue.name for flow_queue in self.definition.flow_queues() if flow_queue.flow == flow] or [flow]


def _pairs(flow: str, fields: Mapping[str, Any]) -> list[str]:
    try:
        return keys.pairs(fields)
    except (TypeError, ValueError) as error:
        raise FlowError(f"flow {flow}: fields: {error}: every value must be JSON") from None


def _job_snapshot(answers: Sequence[Any], names: Sequence[str]) -> JobSnapshot:
    """Return what a look found: the hash, and two positions a queue."""
    stored, *positions = answers
    fields = {name: keys.decode(value) for name, value in _in_pairs(stored)}
    waiting = [name for n, name in enumerate(names) if positions[2 * n] is not None]
    processing = [name for n, name in enumerate(names) if positions[2 * n + 1] is not None]
    return JobSnapshot(fields, waiting, processing)


def _in_pairs(flat: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)
