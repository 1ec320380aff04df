"""Sources under test, each with its other side: it adds tasks, takes leases away, and shows the results."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import cached_property
from typing import Any, Protocol

from botocore.credentials import Credentials

from activity_worker.config.sources import PUSH, TaskbrokerSettings
from activity_worker.sources.memory import MemorySource
from activity_worker.sources.protocol import Source
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import JobLock, RedisQueue
from activity_worker.sources.stepfunctions import StepFunctionsSource
from activity_worker.sources.swf import SwfSource
from activity_worker.sources.taskbroker import GRACE_SECONDS, LATE_REPORT_SECONDS, TaskbrokerSource
from activity_worker.sources.taskbroker_push import TaskbrokerPushSource
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState
from activity_worker.taskbroker.protocol.channel import ChannelSettings
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from activity_worker.testing import FakeSettings, Fault, StepFunctionsFake, SwfFake, SwfFakeSettings
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.aws import AwsJsonCaller
from activity_worker.wire.credentials import CredentialsProvider
from activity_worker.wire.plain_environment import AwsEndpoint
from activity_worker.wire.redis_connection import open_client
from activity_worker.wire.swf import SwfClient
from tests.conformance.services import REGION, Service, new_name
from tests.conformance.swf_services import Execution, SwfService
from tests.servers.postgres import new_database, postgres
from tests.servers.redis import RedisServer, redis_server

#: Seconds for which an empty poll is held.
HOLD_SECONDS = 0.2
#: The same for a taskbroker, whose producer waits for its disk meanwhile.
TASKBROKER_HOLD_SECONDS = 3.0
#: The processing deadline of tasks of a taskbroker: longer than any test.
DEADLINE_SECONDS = 600


class Servers:
    """The servers of the tests, each started when it is first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @cached_property
    def redis(self) -> RedisServer:
        """A Redis server."""
        return self._stack.enter_context(redis_server())

    @cached_property
    def postgres(self) -> str:
        """The URL of a PostgreSQL server."""
        return self._stack.enter_context(postgres(durable=False))


#: The result of a task: (succeeded, result) or (failed, error text).
Outcome = tuple[str, Any]


class SourceHarness(Protocol):
    """A source and its other side. Tasks have an input of one field, `n`."""

    @property
    def source(self) -> Source:
        """The source under test."""
        ...

    async def put(self, n: int) -> None:
        """Add a task."""
        ...

    async def take_away(self, token: str) -> None:
        """End the lease of a task, which may be given to another worker or to none."""
        ...

    async def outcomes(self) -> dict[int, Outcome]:
        """Return the outcomes of the concluded tasks, by their `n`."""
        ...

    async def cut(self) -> None:
        """Break the connection under the next heartbeat, or all connections; nothing where there is none."""
        ...


def kept(outcome: Outcome, harness: SourceHarness) -> Outcome:
    """Return the part of an outcome that the other side keeps: a taskbroker keeps neither outputs nor errors."""
    return (outcome[0], None) if isinstance(harness, TaskbrokerHarness) else outcome


class MemoryHarness:
    """The in-memory source."""

    def __init__(self) -> None:
        self.source: MemorySource = MemorySource(hold_seconds=HOLD_SECONDS)
        self._numbers: dict[str, int] = {}

    async def put(self, n: int) -> None:
        self._numbers[self.source.put(json.dumps({"n": n}))] = n

    async def take_away(self, token: str) -> None:
        self.source.expire(token)

    def request_cancel(self, token: str) -> None:
        """Ask for the cancellation of a task."""
        self.source.request_cancel(token)

    async def cut(self) -> None:
        """Do nothing."""

    async def outcomes(self) -> dict[int, Outcome]:
        return {
            self._numbers[token]: ("succeeded", json.loads(one.output))
            if one.result == "success"
            else ("cancelled" if one.result == "cancelled" else "failed", one.cause)
            for token, one in self.source.conclusions.items()
        }


class StepFunctionsHarness:
    """The Step Functions fake."""

    def __init__(self, fake: StepFunctionsFake, service: Service) -> None:
        self._fake = fake
        self._arn = fake.create_activity("work")
        self.source: Source = StepFunctionsSource(service.client, self._arn)
        # The fake forgets the input of a concluded task.
        self._numbers: dict[str, int] = {}

    async def put(self, n: int) -> None:
        (task,) = self._fake.schedule(self._arn, json.dumps({"n": n}))
        self._numbers[task.token] = n

    async def take_away(self, token: str) -> None:
        self._fake._tasks.abort(self._fake._tasks.tasks[token])

    async def cut(self) -> None:
        self._fake.inject("SendTaskHeartbeat", Fault.DROP_REPLY)

    async def outcomes(self) -> dict[int, Outcome]:
        return {
            self._numbers[task.token]: ("succeeded", json.loads(task.output))
            if task.state == "succeeded"
            else ("failed", task.cause)
            for task in self._fake.tasks
            if task.conclusions
        }


class SwfHarness:
    """The Amazon SWF fake."""

    def __init__(self, fake: SwfFake, client: SwfClient) -> None:
        self._fake = fake
        self.source: Source = SwfSource(client, "shop", "work")
        # The fake forgets the input of a concluded task.
        self._numbers: dict[str, int] = {}

    async def put(self, n: int) -> None:
        (task,) = self._fake.schedule("shop", "work", json.dumps({"n": n}))
        self._numbers[task.token] = n

    async def take_away(self, token: str) -> None:
        (task,) = (each for each in self._fake.tasks if each.token == token)
        self._fake.terminate(task.workflow)

    async def cut(self) -> None:
        self._fake.inject("RecordActivityTaskHeartbeat", Fault.DROP_REPLY)

    def request_cancel(self, token: str) -> None:
        """Ask for the cancellation of a task, as its decider would."""
        (task,) = (each for each in self._fake.tasks if each.token == token)
        self._fake.request_cancel(task)

    async def outcomes(self) -> dict[int, Outcome]:
        return {
            self._numbers[task.token]: ("succeeded", json.loads(task.result))
            if task.state == "completed"
            else ("cancelled" if task.state == "canceled" else "failed", task.details)
            for task in self._fake.tasks
            if task.closing_events()
        }


class MotoHarness:
    """A domain of moto's own, which decides by raw calls. It has no cancellation."""

    def __init__(self, service: SwfService) -> None:
        self._service = service
        self._task_list = new_name()
        self.source: Source = SwfSource(service.client, service.domain, self._task_list)
        self._put: dict[int, Execution] = {}

    async def put(self, n: int) -> None:
        self._put[n] = await self._service.scheduled(json.dumps({"n": n}), task_list=self._task_list)

    async def take_away(self, token: str) -> None:
        for execution in self._put.values():
            await self._service.call("TerminateWorkflowExecution", domain=self._service.domain, **execution.name)

    async def cut(self) -> None:
        """Do nothing: the server is shared by all tests."""

    async def outcomes(self) -> dict[int, Outcome]:
        found: dict[int, Outcome] = {}
        for n, execution in self._put.items():
            events = await self._service.activity_events(execution)
            if events[-1] == "Completed":
                closed = await self._service.attributes(execution, "ActivityTaskCompleted")
                found[n] = ("succeeded", json.loads(closed["result"]))
            elif events[-1] == "Failed":
                closed = await self._service.attributes(execution, "ActivityTaskFailed")
                found[n] = ("failed", closed["details"])
        return found


class RedisHarness:
    """A queue on a Redis server."""

    def __init__(self, url: str, *, atomic: bool) -> None:
        queue = RedisQueue("shop", "pack", ("n",), block_seconds=HOLD_SECONDS)
        self._url = url
        self.client = open_client(url)
        self.source: Source = RedisSource(self.client, queue, atomic=atomic)
        self._put: list[int] = []

    async def put(self, n: int) -> None:
        await self.client.transaction(
            [("HSET", keys.job("shop", str(n)), "n", str(n)), ("RPUSH", keys.waiting("pack"), str(n))]
        )
        self._put.append(n)

    async def take_away(self, token: str) -> None:
        await self.client.call("SET", keys.lock("pack", JobLock.of(token).job_id), "another", "EX", 60)

    async def cut(self) -> None:
        other = open_client(self._url)
        await other.call("CLIENT", "KILL", "TYPE", "normal")
        await other.close()

    async def outcomes(self) -> dict[int, Outcome]:
        found: dict[int, Outcome] = {}
        for n in self._put:
            stored = await self.client.call("HGETALL", keys.job("shop", str(n)))
            fields = {name: keys.decode(value) for name, value in zip(stored[::2], stored[1::2], strict=True)}
            if fields.get(keys.FAILED):
                found[n] = ("failed", fields[keys.FAILED_ERROR])
            elif fields.pop(keys.COMPLETED_QUEUE, None):
                found[n] = ("succeeded", {name: value for name, value in fields.items() if name != "n"})
        return found


class TaskbrokerHarness:
    """A taskbroker. The source's own clock ends its leases."""

    def __init__(self, port: int, store: BrokerStore) -> None:
        self._store = store
        self._ahead = 0.0
        address = f"127.0.0.1:{port}"
        self.source: Source = TaskbrokerSource(
            TaskbrokerSettings((address,)), hold_seconds=TASKBROKER_HOLD_SECONDS, clock=self.clock
        )
        self.producer = TaskProducer(ChannelSettings(address))
        self._put: list[int] = []

    def clock(self) -> float:
        """Return the source's time, which `take_away` moves."""
        return asyncio.get_running_loop().time() + self._ahead

    async def put(self, n: int) -> None:
        # msgpack has integers of 64 bits.
        value = n if n < 2**64 else str(n)
        task = NewTask(
            "shop",
            "pack",
            kwargs={"n": value},
            id=str(len(self._put)),
            processing_deadline=DEADLINE_SECONDS,
            retry=RetryState(on_attempts_exceeded=OnAttemptsExceeded.DEADLETTER),
        )
        await self.producer.enqueue([task])
        self._put.append(n)

    async def take_away(self, token: str) -> None:
        self._ahead += DEADLINE_SECONDS + GRACE_SECONDS + LATE_REPORT_SECONDS

    async def cut(self) -> None:
        """Do nothing: all tests share the broker."""

    async def outcomes(self) -> dict[int, Outcome]:
        found: dict[int, Outcome] = {}
        for place, n in enumerate(self._put):
            inflight = await self._store.get(str(place))
            letters = {stored.letter.id for stored in await list_dead_letters(self._store)}
            if str(place) in letters or (inflight is not None and inflight.state is ActivationState.FAILURE):
                found[n] = ("failed", None)
            elif inflight is None or inflight.state is ActivationState.COMPLETE:
                found[n] = ("succeeded", None)
        return found


@asynccontextmanager
async def memory(_: Servers) -> AsyncIterator[SourceHarness]:
    """Yield the memory source."""
    yield MemoryHarness()


@asynccontextmanager
async def step_functions(_: Servers) -> AsyncIterator[SourceHarness]:
    """Yield Step Functions."""
    settings = FakeSettings(poll_hold_seconds=HOLD_SECONDS)
    async with StepFunctionsFake(settings=settings) as fake, Service("fake", fake.url) as service:
        yield StepFunctionsHarness(fake, service)


@asynccontextmanager
async def swf(_: Servers) -> AsyncIterator[SourceHarness]:
    """Yield a task list of Amazon SWF."""
    async with SwfFake(settings=SwfFakeSettings(poll_hold_seconds=HOLD_SECONDS), domains=["shop"]) as fake:
        endpoint = AwsEndpoint(fake.url, REGION, "swf", "")
        keeper = CredentialsProvider(lambda: Credentials("test", "test"))
        client = SwfClient(AwsJsonCaller(endpoint, keeper, target_prefix="SimpleWorkflowService"))
        yield SwfHarness(fake, client)
        await client.close()


@asynccontextmanager
async def redis(servers: Servers, *, atomic: bool = False) -> AsyncIterator[SourceHarness]:
    """Yield a queue of an empty server."""
    harness = RedisHarness(servers.redis.url, atomic=atomic)
    await harness.client.call("FLUSHALL")
    yield harness
    await harness.source.close()
    await harness.client.close()


@asynccontextmanager
async def taskbroker(servers: Servers, *, on_sqlite: bool = False, push: bool = False) -> AsyncIterator[SourceHarness]:
    """Yield a broker on an empty store; with `push` it pushes to the source."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/broker.db" if on_sqlite else await new_database(servers.postgres)
        async with running_broker(url, BrokerOptions("127.0.0.1:0")) as port:
            store = await BrokerStore.open(url)
            harness = TaskbrokerHarness(port, store)
            if push:
                await harness.source.close()
                harness.source = await pushed_source(harness, port)
            yield harness
            await harness.source.close()
            await harness.producer.close()
            await store.close()


async def pushed_source(harness: TaskbrokerHarness, port: int) -> TaskbrokerPushSource:
    """Return a source to which the broker at this port pushes."""
    settings = TaskbrokerSettings(
        (f"127.0.0.1:{port}",), delivery=PUSH, push_address="127.0.0.1:0", advertise="127.0.0.1"
    )
    return await TaskbrokerPushSource.open(settings, hold_seconds=TASKBROKER_HOLD_SECONDS, clock=harness.clock)


HARNESSES: dict[str, Callable[[Servers], AbstractAsyncContextManager[SourceHarness]]] = {
    "memory": memory,
    "stepfunctions": step_functions,
    "swf": swf,
    "redis": redis,
    "redis-atomic": lambda servers: redis(servers, atomic=True),
    "taskbroker-sqlite": lambda servers: taskbroker(servers, on_sqlite=True),
    "taskbroker-postgresql": taskbroker,
    "taskbroker-push-sqlite": lambda servers: taskbroker(servers, on_sqlite=True, push=True),
    "taskbroker-push-postgresql": lambda servers: taskbroker(servers, push=True),
}
