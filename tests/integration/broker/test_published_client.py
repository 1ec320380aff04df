"""The published client: its worker runs our broker's tasks, and our worker runs the tasks that it makes."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from activity_worker.taskbroker.broker.listed_workers import ListedWorkers
from activity_worker.taskbroker.broker.service import Delivery
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import RetryState, parse_activation
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel
from activity_worker.taskbroker.protocol.messages import PRODUCER_SERVICE, EnqueueRequest, EnqueueResponse
from activity_worker.taskbroker.protocol.parameters import decode_parameters
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import TaskFilter
from tests.eventually import eventually
from tests.integration.worker.process import worker
from tests.peers.taskbroker import environment
from tests.peers.taskbroker.environment import PUBLISHED_CLIENT
from tests.servers.ports import free_port

HERE = Path(environment.__file__).parent
SECRETS = '["ruby", "moon"]'
SECONDS = 90.0


def command(*arguments: str) -> list[str]:
    return [str(PUBLISHED_CLIENT.find() / "bin" / "python"), str(HERE / "peer_app.py"), *arguments]


def variables() -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return clean | {"PYTHONPATH": str(HERE), "PEER_SECRETS": SECRETS}


@contextmanager
def published_worker(log: Path, *arguments: str) -> Iterator[None]:
    """Run the published worker; it is killed with what it has started."""
    with log.open("wb") as file:
        running = subprocess.Popen(
            command(*arguments), stderr=file, stdout=file, env=variables(), start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(running.pid, 9)
        running.wait()


def made_by_the_published_client(path: Path) -> list[bytes]:
    made = subprocess.run(command("enqueue", str(path)), env=variables(), capture_output=True, check=True, timeout=60)
    return [bytes.fromhex(line.decode()) for line in made.stdout.split()]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_its_messages_are_read(tmp_path: Path) -> None:
    small, large, failing = (parse_activation(data) for data in made_by_the_published_client(tmp_path / "log"))

    assert (small.namespace, small.taskname, small.application) == ("shop", "note", "shop")
    assert small.processing_deadline_duration == 30
    found = decode_parameters(small.parameters, small.headers, small.parameters_json)
    assert (list(found.args)[1:], dict(found.kwargs)) == ([b"\x00\xff", 7], {"urgent": True})
    assert large.headers["compression-type"] == "zstd"
    assert len(decode_parameters(large.parameters, large.headers).args[1]) == 4_000_000
    assert failing.retry is not None
    assert (failing.retry.attempts, failing.retry.max_attempts) == (0, 2)


async def test_its_worker_runs_tasks_of_our_broker(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    secrets = ("moon", "ruby")
    async with running_broker(url, BrokerOptions("127.0.0.1:0", secrets=secrets)) as port:
        address = f"127.0.0.1:{port}"
        async with TaskProducer(ChannelSettings(address, secrets)) as producer:
            retry = RetryState(max_attempts=2)
            await producer.enqueue(
                [
                    NewTask("shop", "note", args=[str(log), b"\x00", 7], kwargs={"k": None}, application="shop"),
                    NewTask("shop", "fail", args=[str(log)], application="shop", retry=retry),
                ]
            )
            output = tmp_path / "worker.log"
            with published_worker(output, "work", address):
                await eventually("three runs", lambda: len(lines(log)) == 3, seconds=SECONDS, details=output.read_text)

    assert sorted(lines(log)) == ["'fail'", "'fail'", "b'\\x00' 7 ('k', None)"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_our_broker_pushes_to_its_worker(url: str, tmp_path: Path) -> None:
    log, output = tmp_path / "log", tmp_path / "worker.log"
    secrets, listens = ("moon", "ruby"), free_port()
    listed = ListedWorkers(TaskFilter(application="shop"), (f"127.0.0.1:{listens}",))
    options = BrokerOptions("127.0.0.1:0", secrets=secrets, delivery=Delivery.PUSH, worker_map=(listed,))
    async with running_broker(url, options) as port:
        address = f"127.0.0.1:{port}"
        async with TaskProducer(ChannelSettings(address, secrets)) as producer:
            notes = [NewTask("shop", "note", args=[str(log), n], application="shop") for n in range(10)]
            failing = NewTask("shop", "fail", args=[str(log)], application="shop", retry=RetryState(max_attempts=2))
            await producer.enqueue([*notes, failing])
            with published_worker(output, "push", address, str(listens)):
                await eventually("12 runs", lambda: len(lines(log)) == 12, seconds=SECONDS, details=output.read_text)
                store = await BrokerStore.open(url)

                async def empty() -> bool:
                    return not await store.depths()

                await eventually("all are reported", empty, seconds=SECONDS, details=output.read_text)
                await store.close()

    assert sorted(lines(log)) == sorted(["'fail'", "'fail'", *map(str, range(10))])


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_our_worker_runs_the_tasks_that_it_makes(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    request = EnqueueRequest()
    for data in made_by_the_published_client(log):
        request.activations.add().ParseFromString(data)
    async with running_broker(url, BrokerOptions("127.0.0.1:0")) as port:
        address = f"127.0.0.1:{port}"
        channel = TaskbrokerChannel(ChannelSettings(address))
        await channel.call(f"/{PRODUCER_SERVICE}/Enqueue", request, EnqueueResponse)
        await channel.close()
        handlers = "tests.integration.broker.published_tasks:app"
        async with worker("run", handlers, "--taskbroker", address, "--taskbroker-application", "shop") as running:
            await eventually(
                "four runs", lambda: len(lines(log)) == 4, seconds=SECONDS, details=lambda: str(running.lines)
            )

    assert sorted(lines(log)) == ["4000000", "b'\\x00\\xff' 7 ('urgent', True)", "fail", "fail"]
