"""`activity-worker run` as a process on our own broker, on both stores."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from activity_worker.contract import EXIT_OK
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState
from activity_worker.taskbroker.protocol.channel import ChannelSettings
from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from tests.cluster import certificates
from tests.eventually import eventually
from tests.integration.worker.process import stopping, worker
from tests.servers.ports import free_port

HANDLERS = "tests.integration.broker.worker_handlers:app"
#: Deadlines pass from the start on, and soon.
OPTIONS = BrokerOptions(
    "127.0.0.1:0", policy=BrokerPolicy(grace_seconds=0.5, max_attempts=5), deadline_pause_seconds=0.0
)
SECONDS = 60.0


@dataclass
class Shop:
    """A broker with its producer and its store, and the file of its handlers."""

    address: str
    producer: TaskProducer
    store: BrokerStore
    log: Path

    async def put(
        self,
        name: str,
        *,
        namespace: str = "shop",
        args: Sequence[object] = (),
        deadline: int = 30,
        attempts: int = 1,
        at_most_once: bool = False,
        **kwargs: object,
    ) -> None:
        last = OnAttemptsExceeded.DEADLETTER
        retry = RetryState(max_attempts=attempts, on_attempts_exceeded=last, at_most_once=at_most_once)
        task = NewTask(
            namespace,
            name,
            args=args,
            kwargs={"path": str(self.log)} | kwargs,
            processing_deadline=deadline,
            retry=retry,
        )
        await self.producer.enqueue([task])

    def lines(self) -> list[list[str]]:
        """The words of each line, without the process id at its end."""
        return [line.split()[:-1] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def processes(self) -> list[str]:
        return [line.split()[-1] for line in self.log.read_text().splitlines()]

    async def until_empty(self) -> None:
        """Wait until the store has no task."""

        async def empty() -> bool:
            return not await self.store.depths()

        await eventually("the store is empty", empty, seconds=SECONDS)

    async def until_lines(self, number: int) -> None:
        await eventually(f"handlers have written {number} lines", lambda: len(self.lines()) >= number, seconds=SECONDS)

    async def letters(self) -> list[tuple[str, str]]:
        """Task and reason of each dead letter."""
        found = await list_dead_letters(self.store)
        return sorted((each.letter.taskname, each.letter.reason.value) for each in found)

    def run(self, *more: str) -> tuple[str, ...]:
        return ("run", HANDLERS, "--taskbroker", self.address, "--taskbroker-namespace", "shop", *more)


@pytest.fixture
async def shop(url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    async with running_broker(url, OPTIONS) as port:
        address = f"127.0.0.1:{port}"
        store = await BrokerStore.open(url)
        async with TaskProducer(ChannelSettings(address)) as producer:
            yield Shop(address, producer, store, tmp_path / "log")
        await store.close()


async def test_tasks_are_found_by_namespace_and_name(shop: Shop) -> None:
    task = NewTask("shop", "pack", args=[str(shop.log), b"\xff\x00", b"\x01"], kwargs={"urgent": True})
    await shop.producer.enqueue([task])
    await shop.put("plain", n=3)
    await shop.put("pack", namespace="mail")
    names = ("run", HANDLERS, "--taskbroker", shop.address)
    async with worker(*names):
        await shop.until_empty()

    assert sorted(shop.lines()) == [["mail.pack"], ["plain", "3"], ["shop.pack", "ff00", "01", "True"]]
    assert await shop.letters() == []


async def test_handler_knows_the_trace_of_its_tasks_headers(shop: Shop) -> None:
    headers = {"sentry-trace": f"{'4b' * 16}-{'a3' * 8}-1"}
    await shop.producer.enqueue([NewTask("shop", "trace", headers=headers, kwargs={"path": str(shop.log)})])
    async with worker(*shop.run()):
        await shop.until_empty()

    assert shop.lines() == [["trace", f"00-{'4b' * 16}-{'a3' * 8}-01"]]


async def test_worker_asks_for_its_namespace_alone(shop: Shop) -> None:
    await shop.put("pack", namespace="mail")
    await shop.put("plain", n=1)
    async with worker(*shop.run()):
        await shop.until_lines(1)

    assert shop.lines() == [["plain", "1"]]


@pytest.mark.parametrize(("kind", "tries"), [("lookup", 2), ("retry", 2), ("value", 1)])
async def test_policy_says_which_exceptions_are_tried_again(shop: Shop, kind: str, tries: int) -> None:
    await shop.put("fail", kind=kind, attempts=9)
    async with worker(*shop.run()):
        await shop.until_empty()

    assert shop.lines() == [[kind]] * tries
    assert await shop.letters() == [("fail", "reported")]


@pytest.mark.parametrize(
    ("task", "place", "says"),
    [("fail", "in fail", "LookupError: lookup"), ("raise", "in raise_without_policy", "ValueError: without a policy")],
)
async def test_failed_task_has_its_traceback_in_the_log(shop: Shop, task: str, place: str, says: str) -> None:
    await shop.put(task, kind="lookup")
    async with worker(*shop.run()) as running:
        await shop.until_empty()
        await running.line_with("task failed as")
    line, *_ = running.facts("task failed as")

    assert line["message"] == f"task failed as {says}"
    first, frame = line["traceback"].splitlines()[:2]
    assert first == "Traceback (most recent call last):"
    assert "/tests/integration/broker/worker_handlers.py" in frame
    assert frame.endswith(place)


async def test_task_says_how_often_a_handler_without_a_policy_tries(shop: Shop) -> None:
    await shop.put("raise", attempts=3)
    async with worker(*shop.run()):
        await shop.until_empty()

    assert shop.lines() == [["raise"]] * 3


async def test_task_that_runs_at_most_once_is_not_tried_again(shop: Shop) -> None:
    await shop.put("fail", kind="lookup", attempts=9, at_most_once=True)
    async with worker(*shop.run()):
        await shop.until_empty()

    assert shop.lines() == [["lookup"]]


async def test_endless_loop_loses_its_process_at_the_deadline(shop: Shop) -> None:
    await shop.put("spin", deadline=1)
    await shop.put("spin-again", deadline=1)
    await shop.put("plain", n=1)
    async with worker(*shop.run()):
        await shop.until_empty()

    assert sorted(shop.lines()) == [["plain", "1"], ["spin"], ["spin-again"], ["spin-again"]]
    assert await shop.letters() == [("spin", "reported"), ("spin-again", "reported")]


async def test_unknown_task_and_unfitting_arguments_fail(shop: Shop) -> None:
    await shop.put("nobody", attempts=9)
    await shop.put("pack", color="red", attempts=9)
    await shop.producer.enqueue([NewTask("shop", "pack", headers={"compression-type": "zip"}, kwargs={"a": 1})])
    async with worker(*shop.run()) as running:
        await shop.until_empty()
        await running.line_with("unexpected keyword argument 'color'")
        await running.line_with("no handler for the activity 'nobody', namespace 'shop'")

    assert shop.lines() == []
    assert await shop.letters() == [("nobody", "reported"), ("pack", "reported")]


async def test_process_is_replaced_after_its_tasks(shop: Shop) -> None:
    for n in range(5):
        await shop.put("plain", n=n)
    async with worker(*shop.run("--max-tasks-per-process", "2")) as running:
        await shop.until_empty()

    first, second, third = (shop.processes()[place] for place in (0, 2, 4))
    assert shop.processes() == [first, first, second, second, third]
    assert len({first, second, third}) == 3
    assert not any("the handler's process" in line for line in running.lines)


async def test_stopping_worker_ends_its_task_and_takes_no_other(shop: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    port = free_port()
    await shop.put("wait", gate=str(gate))
    async with worker(*shop.run("--health-port", str(port))) as running:
        await shop.until_lines(1)
        await shop.put("plain", n=1)
        running.process.send_signal(signal.SIGTERM)
        await stopping(port)
        gate.touch()
        assert await running.exit_code() == EXIT_OK

    assert shop.lines() == [["began"], ["ended"]]
    waiting = [each.count for each in await shop.store.depths() if each.state is ActivationState.PENDING]
    assert waiting == [1]


async def test_task_of_a_killed_worker_is_given_out_again(shop: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await shop.put("wait", gate=str(gate), deadline=2)
    async with worker(*shop.run()) as running:
        await shop.until_lines(1)
        running.process.kill()
        await running.process.wait()
        gate.touch()
    async with worker(*shop.run()):
        await shop.until_empty()

    assert shop.lines()[-2:] == [["began"], ["ended"]]


async def test_task_whose_process_dies_is_left_to_its_broker(shop: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await shop.put("wait", gate=str(gate), deadline=2)
    async with worker(*shop.run()) as running:
        await shop.until_lines(1)
        gate.touch()
        os.kill(int(shop.processes()[0]), signal.SIGKILL)
        await running.line_with("was interrupted")
        await shop.until_empty()

    assert shop.lines()[-1] == ["ended"]
    assert await shop.letters() == []


async def test_calls_are_signed_and_encrypted(url: str, tmp_path: Path) -> None:
    authority = certificates.authority(tmp_path, "ca")
    issued = certificates.issue(authority, tmp_path, "broker", user="broker", addresses=["localhost"])
    pair = (issued.key.read_bytes(), issued.certificate.read_bytes())
    options = BrokerOptions("localhost:0", secrets=("ruby", "moon"), tls=pair)
    secrets = tmp_path / "secrets.json"
    secrets.write_text('["moon"]')
    async with running_broker(url, options) as port:
        address = f"localhost:{port}"
        settings = ChannelSettings(address, ("ruby",), authority.certificate_file.read_bytes())
        store = await BrokerStore.open(url)
        async with TaskProducer(settings) as producer:
            shop = Shop(address, producer, store, tmp_path / "log")
            await shop.put("plain", n=1)
            files = ("--taskbroker-secrets-file", str(secrets), "--taskbroker-ca-file", str(authority.certificate_file))
            async with worker(*shop.run(*files)):
                await shop.until_empty()
        await store.close()

    assert shop.lines() == [["plain", "1"]]


async def test_wrong_secret_is_named_with_its_fix(shop: Shop, url: str, tmp_path: Path) -> None:
    async with running_broker(url, BrokerOptions("127.0.0.1:0", secrets=("ruby",))) as port:
        wrong = {"ACTIVITY_TASKBROKER_SECRETS": '["moon"]'}
        async with worker("run", HANDLERS, "--taskbroker", f"127.0.0.1:{port}", env=wrong) as running:
            line = await running.line_with("UNAUTHENTICATED")

    assert "give the worker a secret that the broker has" in line
    assert "moon" not in line


async def test_dead_broker_does_not_keep_a_worker_from_another(shop: Shop) -> None:
    dead = f"127.0.0.1:{free_port()}"
    for n in range(3):
        await shop.put("plain", n=n)
    run = ("run", HANDLERS, "--taskbroker", f"{dead},{shop.address}")
    async with worker(*run) as running:
        await shop.until_empty()
        await running.line_with("the taskbroker is set aside")

    assert sorted(shop.lines()) == [["plain", "0"], ["plain", "1"], ["plain", "2"]]
