"""The count of a real taskbroker on both stores: which tasks count, how soon, and what the pool says when it cannot."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from activity_operator.backlog import taskbroker
from activity_operator.core.observation import BacklogCount
from activity_operator.core.tenancy import TenancyPolicy, TenancyRule
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol import messages
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel
from activity_worker.taskbroker.protocol.messages import CountTasksResponse
from tests.cluster import certificates
from tests.integration.backlog.counted import Counted
from tests.servers.ports import free_port
from tests.servers.postgres import new_database, postgres
from tests.servers.taskbroker import BrokerProcess

COMPLETE = 5


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with postgres(durable=False) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker process on an empty store."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/broker.db" if sqlite else await new_database(str(request.getfixturevalue("server")))
    made = BrokerProcess(url, tmp_path)
    await made.start()
    yield made
    made.stop()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker process on SQLite, not started."""
    made = BrokerProcess(f"sqlite:///{tmp_path}/plain.db", tmp_path)
    yield made
    made.stop()


def source(*ports: int, **more: Any) -> dict[str, Any]:
    """Return the source of a pool on brokers of this machine."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return {"source": {"taskbroker": {"addresses": addresses, **more}}}


async def enqueue(port: int, *tasks: NewTask, settings: ChannelSettings | None = None) -> None:
    async with TaskProducer(settings or ChannelSettings(f"127.0.0.1:{port}")) as producer:
        await producer.enqueue(tasks)


@asynccontextmanager
async def worker(port: int) -> AsyncIterator[TaskbrokerChannel]:
    channel = TaskbrokerChannel(ChannelSettings(f"127.0.0.1:{port}"))
    yield channel
    await channel.close()


async def get_task(channel: TaskbrokerChannel) -> str:
    path = f"/{messages.CONSUMER_SERVICE}/GetTask"
    found = await channel.call(path, messages.GetTaskRequest(), messages.GetTaskResponse)
    return str(found.task.id)


def count(counted: Counted, name: str) -> BacklogCount:
    (found,) = counted._signals.latest(("team", name))[0]
    return found


async def test_pools_count_their_application_and_task_namespace(broker: BrokerProcess, counted: Counted) -> None:
    await enqueue(
        broker.port,
        *(NewTask("mail", "send", application="shop") for _ in range(3)),
        NewTask("images", "resize", application="shop"),
        NewTask("mail", "send"),
        NewTask("mail", "send", application="shop", delay=3600),
    )
    counted.order("all", source(broker.port))
    counted.order("shop", source(broker.port, application="shop"))
    counted.order("shop-mail", source(broker.port, application="shop", namespace="mail"))
    counted.order("mail", source(broker.port, namespace="mail"))
    counted.order("unknown", source(broker.port, application="nobody"))
    for name, tasks in {"all": 5, "shop": 4, "shop-mail": 3, "mail": 4, "unknown": 0}.items():
        await counted.counts(name, tasks)


async def test_tasks_that_workers_have_are_running_until_reported(broker: BrokerProcess, counted: Counted) -> None:
    began = time.time()
    await enqueue(broker.port, NewTask("mail", "send"), NewTask("mail", "send"))
    counted.order("mail", source(broker.port))
    await counted.counts("mail", 2)
    oldest = count(counted, "mail").oldest_since
    assert oldest is not None
    assert began - 2 <= oldest <= time.time()

    async with worker(broker.port) as channel:
        task = await get_task(channel)
        await counted.until(
            "one runs", lambda: (count(counted, "mail").tasks, count(counted, "mail").running) == (1, 1)
        )
        await get_task(channel)
        await counted.until(
            "both run", lambda: (count(counted, "mail").tasks, count(counted, "mail").running) == (0, 2)
        )
        assert count(counted, "mail").oldest_since is None
        path = f"/{messages.CONSUMER_SERVICE}/SetTaskStatus"
        status = messages.SetTaskStatusRequest(id=task, status=COMPLETE)
        await channel.call(path, status, messages.SetTaskStatusResponse)
    await counted.until("one runs", lambda: count(counted, "mail").running == 1)


async def test_oldest_task_keeps_its_time_while_it_waits(broker: BrokerProcess, counted: Counted) -> None:
    await enqueue(broker.port, NewTask("mail", "send"))
    counted.order("mail", source(broker.port))
    await counted.counts("mail", 1)
    first = count(counted, "mail")
    looks = len(counted.seen["mail"])
    await counted.until("some counts later", lambda: count(counted, "mail").observed_at > first.observed_at + 2.0)

    assert count(counted, "mail").oldest_since == first.oldest_since
    assert len(counted.seen["mail"]) == looks, "an unchanged count was announced"


async def test_killed_broker_holds_the_count_and_comes_back(broker: BrokerProcess, counted: Counted) -> None:
    await enqueue(broker.port, NewTask("mail", "send"))
    counted.order("mail", source(broker.port))
    await counted.counts("mail", 1)
    broker.end(signal.SIGKILL)
    error = await counted.fails("mail")
    assert error.reason == "BackendUnreachable"
    assert f"no answer from the taskbroker at 127.0.0.1:{broker.port}" in error.message
    assert counted.tasks("mail") == 1

    await broker.start()
    await enqueue(broker.port, NewTask("mail", "send"))
    await counted.counts("mail", 2)


async def test_two_stores_are_added_and_a_lost_one_is_named(
    broker: BrokerProcess, plain: BrokerProcess, counted: Counted
) -> None:
    await plain.start()
    await enqueue(broker.port, NewTask("mail", "send"))
    await enqueue(plain.port, NewTask("mail", "send"), NewTask("mail", "send"))
    counted.order("mail", source(broker.port, plain.port))
    await counted.counts("mail", 3)
    plain.end(signal.SIGKILL)
    error = await counted.fails("mail")

    assert f"127.0.0.1:{plain.port}" in error.message
    await counted.until("the other broker is counted", lambda: counted.tasks("mail") == 1)
    assert str(plain.port) in count(counted, "mail").missing


async def test_wrong_signature_is_denied_until_the_secret_is_corrected(
    plain: BrokerProcess, counted: Counted, tmp_path: Path
) -> None:
    (tmp_path / "secrets").write_text('["willow", "alder"]')
    plain.options = ("--secrets-file", str(tmp_path / "secrets"))
    await plain.start()
    counted.order("unsigned", source(plain.port))
    counted.secrets["shop"] = '["maple"]'
    counted.order("signed", source(plain.port, signingSecretRef={"name": "shop", "key": "url"}))
    unsigned, wrong = await counted.fails("unsigned"), await counted.fails("signed")

    assert (unsigned.reason, wrong.reason) == ("AccessDenied", "AccessDenied")
    assert "set spec.source.taskbroker.signingSecretRef" in unsigned.message
    assert "correct what spec.source.taskbroker.signingSecretRef names" in wrong.message
    assert "maple" not in wrong.message
    # The second secret verifies, too.
    counted.secrets["shop"] = '["alder"]'
    await counted.counts("signed", 0)


async def test_missing_secrets_are_named_before_any_call(counted: Counted) -> None:
    port = free_port()
    counted.order("signed", source(port, signingSecretRef={"name": "shop", "key": "url"}))
    counted.order("ca", source(port, tls=True, caSecretRef={"name": "ca", "key": "url"}))
    counted.secrets["list"] = "maple"
    counted.order("list", source(port, signingSecretRef={"name": "list", "key": "url"}))

    assert (await counted.fails("signed")).message.startswith("Secret shop in namespace team does not exist")
    assert (await counted.fails("ca")).message.startswith("Secret ca in namespace team does not exist")
    error = await counted.fails("list")
    assert error.reason == "SecretUnusable"
    assert "maple" not in error.message


async def test_tls_is_checked_against_the_authority_and_the_name(
    plain: BrokerProcess, counted: Counted, tmp_path: Path
) -> None:
    ca = certificates.authority(tmp_path, "ca")
    other = certificates.authority(tmp_path, "other")
    issued = certificates.issue(ca, tmp_path, "broker", user="broker", addresses=["localhost"])
    plain.options = ("--tls-certificate", str(issued.certificate), "--tls-key", str(issued.key))
    await plain.start()
    counted.secrets |= {"ca": ca.certificate_file.read_text(), "other": other.certificate_file.read_text()}

    def over_tls(address: str, secret: str) -> dict[str, Any]:
        broker = {"addresses": [address], "tls": True, "caSecretRef": {"name": secret, "key": "url"}}
        return {"source": {"taskbroker": broker}}

    counted.order("right", over_tls(f"localhost:{plain.port}", "ca"))
    counted.order("distrusting", over_tls(f"localhost:{plain.port}", "other"))
    counted.order("misnamed", over_tls(f"127.0.0.1:{plain.port}", "ca"))
    counted.secrets["noise"] = "willow"
    counted.order("noise", over_tls(f"localhost:{plain.port}", "noise"))
    counted.order("plain", source(plain.port))
    await counted.counts("right", 0)
    assert "no certificate in PEM" in (await counted.fails("noise")).message
    distrusting, misnamed = await counted.fails("distrusting"), await counted.fails("misnamed")
    assert (distrusting.reason, misnamed.reason) == ("TlsFailed", "TlsFailed")
    assert "its certificate is signed by another authority" in distrusting.message
    assert "its certificate is for another name" in misnamed.message
    assert (await counted.fails("plain")).reason == "BackendUnreachable"


async def test_policy_applies_to_every_address(plain: BrokerProcess, counted: Counted) -> None:
    await plain.start()
    counted.policy = TenancyPolicy((TenancyRule(source_hosts=(f"127.0.0.1:{plain.port}",)),))
    counted.order("allowed", source(plain.port))
    counted.order("refused", source(plain.port, free_port()))
    await counted.counts("allowed", 0)
    assert (await counted.fails("refused")).reason == "TenancyDenied"


@asynccontextmanager
async def hostile(answer: Any) -> AsyncIterator[int]:
    """Run a gRPC server that answers CountTasks with what `answer(request, context)` returns."""
    server = grpc.aio.server()
    handler: dict[str, Any] = {"CountTasks": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(messages.BACKLOG_SERVICE, handler),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port
    await server.stop(None)


async def test_answer_that_is_too_large_is_not_read(counted: Counted) -> None:
    async def flood(_: bytes, __: Any) -> bytes:
        return b"x" * (taskbroker.ANSWER_BYTES + 1)

    async with hostile(flood) as port:
        counted.order("mail", source(port))
        error = await counted.fails("mail")
    assert error.reason == "QueryFailed"
    assert "its answer has more than 1048576 bytes" in error.message


async def test_broker_that_never_answers_does_not_hide_another(
    plain: BrokerProcess, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taskbroker, "CALL_SECONDS", 0.3)

    async def silent(_: bytes, __: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    await plain.start()
    await enqueue(plain.port, NewTask("mail", "send"))
    async with hostile(silent) as port:
        counted.order("mail", source(plain.port, port))
        error = await counted.fails("mail")
        await counted.until("the other broker is counted", lambda: counted.tasks("mail") == 1)
    assert error.reason == "BackendUnreachable"
    assert f"127.0.0.1:{port}" in error.message


async def test_answers_that_make_no_sense_are_refused(counted: Counted) -> None:
    answers = {"many": CountTasksResponse(counts=[{}, {}]).SerializeToString(), "noise": b"\xff" * 40}
    for name, answer in answers.items():

        async def answered(_: bytes, __: Any, answer: bytes = answer) -> bytes:
            return answer

        async with hostile(answered) as port:
            counted.order(name, source(port))
            assert (await counted.fails(name)).reason == "QueryFailed"


async def test_published_taskbroker_without_the_call_names_the_way_out(counted: Counted) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    counted.order("mail", source(port))
    error = await counted.fails("mail")
    await server.stop(None)
    assert error.reason == "QueryFailed"
    assert "set activation.mode None, and scaling.prometheus" in error.message
