"""A broker as its clients meet it: calls, signatures, TLS, limits, a process that is killed."""

import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from activity_worker.errors import PortError
from activity_worker.taskbroker.broker.limits import StoreLimits
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol import messages
from activity_worker.taskbroker.protocol.activation import Activation, OnAttemptsExceeded, RetryState, activation_of
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.parameters import Parameters, decode_parameters
from activity_worker.taskbroker.store import broker_store
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from tests.cluster import certificates
from tests.eventually import eventually
from tests.servers.taskbroker import BrokerProcess

FAILURE, RETRY, COMPLETE = 3, 4, 5


class Client:
    """A worker and a producer without a loop of their own."""

    def __init__(self, port: int, secrets: Sequence[str] = (), tls_root: bytes | None = None) -> None:
        settings = ChannelSettings(f"localhost:{port}", secrets, tls_root)
        self.channel = TaskbrokerChannel(settings)
        self.producer = TaskProducer(settings, retry_seconds=0.0)

    async def get(self, **wanted: str) -> Activation:
        request = messages.GetTaskRequest(**wanted)
        response = await self._call("GetTask", request, messages.GetTaskResponse)
        return activation_of(response.task)

    async def set(self, task_id: str, status: int, **fields: Any) -> Activation | None:
        request = messages.SetTaskStatusRequest(id=task_id, status=status, **fields)
        response = await self._call("SetTaskStatus", request, messages.SetTaskStatusResponse)
        return activation_of(response.task) if response.HasField("task") else None

    async def set_batch(self, *updates: tuple[str, int]) -> None:
        request = messages.SetBatchActivationStatusRequest()
        for task_id, status in updates:
            request.updates.add(id=task_id, status=status)
        await self._call("SetBatchActivationStatus", request, messages.SetBatchActivationStatusResponse)

    async def exchange(self, updates: Sequence[tuple[str, int]], wanted: int, **chosen: str) -> list[str]:
        request = messages.ExchangeTasksRequest(wanted=wanted, **chosen)
        for task_id, status in updates:
            request.updates.add(id=task_id, status=status)
        path = f"/{messages.EXCHANGE_SERVICE}/ExchangeTasks"
        response = await self.channel.call(path, request, messages.ExchangeTasksResponse)
        return [task.id for task in response.tasks]

    async def close(self) -> None:
        await self.channel.close()
        await self.producer.close()

    async def _call(self, name: str, request: Any, answer: Any) -> Any:
        return await self.channel.call(f"/{messages.CONSUMER_SERVICE}/{name}", request, answer)


@asynccontextmanager
async def client(port: int, secrets: Sequence[str] = (), tls_root: bytes | None = None) -> AsyncIterator[Client]:
    made = Client(port, secrets, tls_root)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def broker(url: str) -> AsyncIterator[Client]:
    """A client of a broker on an empty store."""
    async with running_broker(url, BrokerOptions("127.0.0.1:0")) as port, client(port) as made:
        yield made


def task(task_id: str, **fields: Any) -> NewTask:
    return NewTask(**{"namespace": "mail", "taskname": "send", "id": task_id, **fields})


async def refused(code: str, call: Any) -> str:
    with pytest.raises(TaskbrokerError) as raised:
        await call
    assert raised.value.code == code, raised.value
    return str(raised.value)


async def test_task_travels_from_producer_to_worker(broker: Client) -> None:
    retry = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER, delay_on_retry=1)
    sent = task(
        "one", args=[1, b"x"], kwargs={"to": "me"}, headers={"k": "v"}, retry=retry, application="shop", expires=60
    )
    assert await broker.producer.enqueue([sent, task("two")]) == 2
    assert await broker.producer.enqueue([sent]) == 0
    got = await broker.get(application="shop")
    assert (got.id, got.namespace, got.taskname, got.application) == ("one", "mail", "send", "shop")
    assert (got.retry, got.expires, got.headers, got.processing_deadline_duration) == (retry, 60, {"k": "v"}, 10)
    assert decode_parameters(got.parameters, got.headers) == Parameters((1, b"x"), {"to": "me"})
    assert "No pending activations" in await refused("NOT_FOUND", broker.get(application="shop"))


async def test_status_brings_the_next_task_if_asked_for(broker: Client) -> None:
    await broker.producer.enqueue([task("one"), task("two"), task("three", namespace="image")])
    assert (await broker.get()).id == "one"
    following = await broker.set("one", COMPLETE, fetch_next_task={"namespace": "image"})
    assert following is not None
    assert following.id == "three"
    assert await broker.set("three", COMPLETE, fetch_next_task={"namespace": "image"}) is None
    assert await broker.set("unknown", COMPLETE) is None
    assert (await broker.get()).id == "two"


async def test_retry_comes_again_with_its_attempts(broker: Client) -> None:
    await broker.producer.enqueue([task("one", retry=RetryState(0, 3))])
    await broker.get()
    await broker.set("one", RETRY, max_attempts=5)
    again = await eventually_task(broker)
    assert again.id != "one"
    assert again.retry == RetryState(1, 5)


async def eventually_task(broker: Client) -> Activation:
    """Poll until upkeep has brought a task; a round of it comes each second."""

    async def poll() -> Activation | None:
        try:
            return await broker.get()
        except TaskbrokerError as error:
            if error.code != "NOT_FOUND":
                raise
            return None

    return await eventually("a task is pending", poll)


async def test_batch_of_statuses(broker: Client) -> None:
    await broker.producer.enqueue([task("one"), task("two")])
    for _ in range(2):
        await broker.get()
    await broker.set_batch(("one", COMPLETE), ("two", FAILURE), ("unknown", RETRY))
    await refused("INVALID_ARGUMENT", broker.set_batch(("one", COMPLETE), ("two", 1)))


async def test_exchange_reports_and_brings_tasks_in_one_call(broker: Client) -> None:
    await broker.producer.enqueue([task(f"task-{number}") for number in range(5)] + [task("other", namespace="image")])
    assert await broker.exchange([], 3, namespace="mail") == ["task-0", "task-1", "task-2"]
    updates = [("task-0", COMPLETE), ("task-1", COMPLETE), ("task-2", FAILURE), ("unknown", COMPLETE)]
    assert await broker.exchange(updates, 9, namespace="mail") == ["task-3", "task-4"]
    assert await broker.exchange([], 9, namespace="mail") == []
    assert await broker.exchange([("task-3", RETRY)], 0) == []
    assert await broker.exchange([], 1) == ["other"]
    assert "1001 tasks wanted" in await refused("INVALID_ARGUMENT", broker.exchange([], 1001))


async def test_exchange_brings_no_more_than_fits_into_an_answer(
    broker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_store, "ANSWER_BYTES", 2500)
    await broker.producer.enqueue([task(f"task-{number}", args=["x" * 1000]) for number in range(4)])
    assert await broker.exchange([], 9) == ["task-0", "task-1"]
    assert await broker.exchange([], 9) == ["task-2", "task-3"]
    # One that is larger comes alone.
    await broker.producer.enqueue([task(f"large-{number}", args=["x" * 3000]) for number in range(2)])
    assert await broker.exchange([], 9) == ["large-0"]
    # What did not fit has not been given out.
    assert (await broker.get()).id == "large-1"


@pytest.mark.parametrize("status", [0, 1, 2, 9])
async def test_status_that_no_worker_reports_is_refused(broker: Client, status: int) -> None:
    words = await refused("INVALID_ARGUMENT", broker.set("one", status))
    assert f"status is {status}: expected one of FAILURE (3), RETRY (4), COMPLETE (5)" in words


async def test_wrong_calls_are_refused_with_the_field(broker: Client) -> None:
    words = await refused("INVALID_ARGUMENT", broker.producer.enqueue([task("one"), task("two", namespace="")]))
    assert "activations[1]: namespace is empty" in words
    await refused("NOT_FOUND", broker.get())  # none of the two was kept
    assert "id has a NUL" in await refused("INVALID_ARGUMENT", broker.set("a\0b", COMPLETE))
    assert "namespace has a NUL" in await refused("INVALID_ARGUMENT", broker.get(namespace="a\0b"))
    many = [task(str(number)) for number in range(1001)]
    assert "1001 activations" in await refused("INVALID_ARGUMENT", broker.producer.enqueue(many))


async def test_full_broker_takes_no_more(url: str) -> None:
    options = BrokerOptions("127.0.0.1:0", limits=StoreLimits(max_pending=2, max_processing=1))
    async with running_broker(url, options) as port, client(port) as broker:
        await broker.producer.enqueue([task("one"), task("two")])
        words = await refused("RESOURCE_EXHAUSTED", broker.producer.enqueue([task("three")]))
        assert "2 tasks wait, and --max-pending is 2" in words
        # A producer that waits gets its turn when a worker has made room, and upkeep has counted.
        waiting = TaskProducer(ChannelSettings(f"localhost:{port}"), retry_seconds=30.0)
        try:
            for one in ("one", "two"):
                await broker.get()
                await broker.set(one, COMPLETE)
            assert await waiting.enqueue([task("three")]) == 1
        finally:
            await waiting.close()


async def test_calls_need_the_signature_of_any_of_the_secrets(url: str) -> None:
    options = BrokerOptions("127.0.0.1:0", secrets=("new", "old"))
    async with running_broker(url, options) as port:
        for secrets in (["new"], ["old"], ["old", "other"]):
            async with client(port, secrets) as signed:
                await refused("NOT_FOUND", signed.get())
        for secrets in ([], ["other"], ["other", "new"]):
            async with client(port, secrets) as stranger:
                assert "Authentication failed" in await refused("UNAUTHENTICATED", stranger.get())
                await refused("UNAUTHENTICATED", stranger.producer.enqueue([task("one")]))
        async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_port_that_is_taken_is_named(url: str) -> None:
    async with running_broker(url, BrokerOptions("127.0.0.1:0")) as port:
        with pytest.raises(PortError, match=f"--address 127.0.0.1:{port} cannot be listened on"):
            async with running_broker(url, BrokerOptions(f"127.0.0.1:{port}")):
                pass


async def test_calls_over_tls(tmp_path: Path) -> None:
    ca = certificates.authority(tmp_path, "ca")
    issued = certificates.issue(ca, tmp_path, "broker", user="broker", addresses=["localhost"])
    tls = issued.key.read_bytes(), issued.certificate.read_bytes()
    async with running_broker(f"sqlite:///{tmp_path}/broker.db", BrokerOptions("127.0.0.1:0", tls=tls)) as port:
        async with client(port, tls_root=ca.certificate_file.read_bytes()) as trusting:
            await refused("NOT_FOUND", trusting.get())
        async with client(port, tls_root=b"") as distrusting:
            await refused("UNAVAILABLE", distrusting.get())
        async with client(port) as plain:
            await refused("UNAVAILABLE", plain.get())


@pytest.fixture
def process(url: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(url, tmp_path, ("--deadline-pause-seconds", "0", "--grace-seconds", "0"))
    yield made
    made.stop()


async def test_killed_broker_loses_nothing(process: BrokerProcess) -> None:
    await process.start()
    async with client(process.port) as broker:
        kept = RetryState(0, 1, OnAttemptsExceeded.DEADLETTER)
        tasks = [task("bad", retry=kept), task("lost", processing_deadline=1), task("waiting")]
        assert await broker.producer.enqueue(tasks) == 3
        assert [(await broker.get()).id, (await broker.get()).id] == ["bad", "lost"]
        await broker.set("bad", FAILURE)
    process.end(signal.SIGKILL)
    await process.start()
    async with client(process.port) as broker:
        # The lost task is first again when its deadline has passed; the waiting one was never given out.
        seen = {(await eventually_task(broker)).id, (await eventually_task(broker)).id}
        assert seen == {"lost", "waiting"}
        await broker.set_batch(("lost", COMPLETE), ("waiting", COMPLETE))

    def shown() -> bool:
        lines = [
            line for line in process.page("metrics").splitlines() if line.startswith("activity_broker_activations{")
        ]
        assert any('namespace="mail",state="complete"' in line for line in lines)
        return all(line.endswith(" 0.0") for line in lines)

    await eventually("the store is empty", shown)
    page = process.page("metrics")
    assert 'activity_broker_oldest_pending_age_seconds{application="",namespace="mail"} 0.0' in page
    assert 'activity_broker_reports_total{changed="yes",outcome="complete"} 2.0' in page
    assert 'activity_broker_calls_total{call="SetBatchActivationStatus",code="OK"} 1.0' in page
    assert process.end(signal.SIGTERM) == 0
    log = process.log.read_text()
    assert log.count("broker started") == 2
    assert log.count("broker stopped") == 1

    store = await BrokerStore.open(process.url)
    try:
        letters = [stored.letter for stored in await list_dead_letters(store)]
    finally:
        await store.close()
    assert [(letter.id, letter.reason, letter.attempts) for letter in letters] == [("bad", "reported", 1)]
