"""A worker's source of tasks of a taskbroker, with brokers that a test answers for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from activity_worker.config.sources import TaskbrokerSettings
from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.errors import (
    DeniedError,
    LeaseLostError,
    MissingError,
    SourceError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.sources.protocol import CordonedSource, FetchingSource, RetryingSource
from activity_worker.sources.taskbroker import GRACE_SECONDS, LATE_REPORT_SECONDS, TaskbrokerSource, translate
from activity_worker.task import Origin, RetryRequest, take_origin
from activity_worker.taskbroker import consumer
from activity_worker.taskbroker.protocol.activation import Activation, message_of
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerError
from activity_worker.taskbroker.protocol.parameters import Parameters, encode_parameters
from tests.clock import Clock
from tests.eventually import eventually

DEADLINE = 10


class Brokers:
    """Channels whose answers come from `answers`, by address; each call is kept."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.tasks: dict[str, list[str]] = {}
        self.errors: dict[str, str] = {}
        self.exchanges = False
        #: How long each call may wait at its broker, and what happens meanwhile.
        self.waits: list[float] = []
        self.hold: Callable[[float], None] = lambda _: None

    def channel(self, settings: ChannelSettings) -> Any:
        brokers = self

        class Channel:
            async def call(self, path: str, request: Any, answer: Any, *, wait_seconds: float = 0.0) -> Any:
                if path.endswith("/ExchangeTasks") and not brokers.exchanges:
                    raise TaskbrokerError("UNIMPLEMENTED", "as a published broker")
                brokers.calls.append((settings.address, path.rpartition("/")[2], request))
                brokers.waits.append(wait_seconds)
                brokers.hold(wait_seconds)
                await asyncio.sleep(0)
                if code := brokers.errors.get(settings.address):
                    raise TaskbrokerError(code, "said the broker")
                return brokers.answer(settings.address, path, request, answer)

            async def close(self) -> None: ...

        return Channel()

    def answer(self, address: str, path: str, request: Any, answer: Any) -> Any:
        tasks = self.tasks.get(address, [])
        if path.endswith("/ExchangeTasks"):
            given = [activation_named(tasks.pop(0)) for _ in tasks[: request.wanted]]
            return answer(tasks=[message_of(one) for one in given])
        gets = path.endswith("/GetTask")
        if gets and not tasks:
            raise TaskbrokerError("NOT_FOUND", "No pending activations")
        if not tasks or not (gets or request.HasField("fetch_next_task")):
            return answer()
        data = activation_named(tasks.pop(0))
        return answer(task=message_of(data))

    def asked(self) -> list[str]:
        return [address for address, name, _ in self.calls if name == "GetTask"]


def activation_named(task_id: str) -> Activation:
    data = b"\xc1" if task_id == "unreadable" else encode_parameters(Parameters((), {"n": 1})).data
    name = "x" * 300 if task_id == "long" else "send"
    headers = {"sentry-trace": f"{'4b' * 16}-{'a3' * 8}-1"} if task_id == "traced" else {}
    return Activation(task_id, "mail", name, data, headers=headers, processing_deadline_duration=DEADLINE)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(consumer, "TaskbrokerChannel", made.channel)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def make(brokers: Brokers, clock: Clock) -> Callable[..., TaskbrokerSource]:
    def source(*addresses: str, application: str | None = None, namespace: str | None = None) -> TaskbrokerSource:
        settings = TaskbrokerSettings(addresses or ("a:1",), application, namespace)
        return TaskbrokerSource(settings, hold_seconds=0.0001, clock=clock)

    return source


async def take(source: TaskbrokerSource) -> LeasedTask:
    task = await source.lease("w")
    assert task is not None
    return task


async def test_lease_is_an_activation_with_its_deadline(
    brokers: Brokers, make: Callable[..., TaskbrokerSource]
) -> None:
    brokers.tasks["a:1"] = ["one"]
    source = make(namespace="mail", application="shop")
    task = await take(source)

    assert source.name == "shop/mail"
    assert (task.input, task.deadline_seconds) == ('{"n":1}', DEADLINE)
    assert task.activity is not None
    assert (task.activity.name, task.activity.namespace, task.activity.id) == ("send", "mail", "one")
    assert (brokers.calls[0][2].namespace, brokers.calls[0][2].application) == ("mail", "shop")
    assert isinstance(source, CordonedSource)
    assert isinstance(source, RetryingSource)
    assert isinstance(source, FetchingSource)


async def test_lease_has_the_trace_that_the_headers_name(
    brokers: Brokers, make: Callable[..., TaskbrokerSource]
) -> None:
    brokers.tasks["a:1"] = ["traced"]
    task = await take(make())

    assert task.activity is not None
    assert task.activity.traceparent == f"00-{'4b' * 16}-{'a3' * 8}-01"
    assert take_origin({}, ScheduledActivity.from_wire(task.activity.to_wire())) == (
        {},
        Origin(traceparent=task.activity.traceparent),
    )


@pytest.mark.parametrize("task_id", ["unreadable", "long"])
async def test_task_that_no_process_can_read_has_no_input(
    brokers: Brokers, make: Callable[..., TaskbrokerSource], task_id: str
) -> None:
    brokers.tasks["a:1"] = [task_id]

    assert (await take(make())).input == ""


async def test_answer_to_a_report_brings_the_next_task_if_wanted(
    brokers: Brokers, make: Callable[..., TaskbrokerSource]
) -> None:
    brokers.tasks["a:1"] = ["one", "two", "three"]
    source = make()
    first = await take(source)
    source.want_next(first.token, True)
    await source.succeed(first.token, "null")
    second = source.take_next(first.token)
    assert second is not None
    assert source.take_next(first.token) is None

    source.want_next(second.token, True)
    source.cordon(True)
    source.want_next(second.token, True)
    await source.fail(second.token, "E", "m")

    assert source.take_next(second.token) is None
    assert [(name, getattr(call, "status", None)) for _, name, call in brokers.calls] == [
        ("GetTask", None),
        ("SetTaskStatus", 5),
        ("SetTaskStatus", 3),
    ]


async def test_interrupted_task_is_not_reported(brokers: Brokers, make: Callable[..., TaskbrokerSource]) -> None:
    brokers.tasks["a:1"] = ["one"]
    source = make()
    task = await take(source)
    await source.fail_with_retry(task.token, "E", "m", RetryRequest(wanted=False, interrupted=True))

    assert brokers.asked() == ["a:1"]
    assert len(brokers.calls) == 1
    with pytest.raises(LeaseLostError):
        await source.heartbeat(task.token)


async def test_lease_ends_by_the_own_clock(
    brokers: Brokers, make: Callable[..., TaskbrokerSource], clock: Clock
) -> None:
    brokers.tasks["a:1"] = ["one"]
    source = make()
    task = await take(source)
    clock.now += DEADLINE
    await source.heartbeat(task.token)
    clock.now += GRACE_SECONDS
    with pytest.raises(LeaseLostError):
        await source.heartbeat(task.token)


async def test_late_report_is_tried_until_no_broker_can_wait_for_it(
    brokers: Brokers, make: Callable[..., TaskbrokerSource], clock: Clock
) -> None:
    brokers.tasks["a:1"] = ["one"]
    source = make()
    task = await take(source)
    brokers.errors["a:1"] = "UNAVAILABLE"
    clock.now += DEADLINE + LATE_REPORT_SECONDS - 1
    with pytest.raises(UnreachableError):
        await source.succeed(task.token, "null")
    # A heartbeat while the report is tried again must not end it.
    await source.heartbeat(task.token)
    clock.now += 1
    with pytest.raises(LeaseLostError):
        await source.succeed(task.token, "null")


async def test_brokers_are_asked_in_turn(brokers: Brokers, make: Callable[..., TaskbrokerSource]) -> None:
    brokers.tasks = {"a:1": ["one", "two"], "b:1": ["three", "four"]}
    source = make("a:1", "b:1")
    ids = [(await take(source)).token.split("/")[:2] for _ in range(4)]

    assert ids == [["a:1", "one"], ["b:1", "three"], ["a:1", "two"], ["b:1", "four"]]


async def test_broker_is_set_aside_after_three_errors_and_asked_again_later(
    brokers: Brokers, make: Callable[..., TaskbrokerSource], clock: Clock
) -> None:
    brokers.errors["a:1"] = "UNAVAILABLE"
    brokers.tasks["b:1"] = [str(n) for n in range(20)]
    source = make("a:1", "b:1")
    for _ in range(10):
        await take(source)
    assert brokers.asked().count("a:1") == consumer.MAX_ERRORS

    clock.now += consumer.ASIDE_SECONDS
    for _ in range(2):
        await take(source)
    assert brokers.asked().count("a:1") == consumer.MAX_ERRORS + 1


async def test_only_broker_is_asked_although_it_fails(brokers: Brokers, make: Callable[..., TaskbrokerSource]) -> None:
    brokers.errors["a:1"] = "UNAVAILABLE"
    source = make()
    for _ in range(consumer.MAX_ERRORS + 1):
        with pytest.raises(UnreachableError):
            await source.lease("w")
    del brokers.errors["a:1"]
    brokers.tasks["a:1"] = ["one"]

    assert (await take(source)).activity is not None


async def test_task_of_a_poll_that_was_given_up_is_kept(
    brokers: Brokers, make: Callable[..., TaskbrokerSource]
) -> None:
    brokers.tasks["a:1"] = ["one"]
    source = make()
    polling = asyncio.create_task(source.lease("w"))
    await asyncio.sleep(0)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await eventually("a broker is asked", lambda: bool(brokers.calls))

    assert (await take(source)).token.split("/")[1] == "one"


async def test_cordon_ends_the_polls_that_wait(brokers: Brokers) -> None:
    source = TaskbrokerSource(TaskbrokerSettings(("a:1",)), hold_seconds=1000.0)
    polls = [asyncio.create_task(source.lease("w")) for _ in range(3)]
    await eventually("a broker is asked", lambda: bool(brokers.calls))
    source.cordon(True)

    assert await asyncio.wait_for(asyncio.gather(*polls), 30) == [None] * 3
    assert await source.lease("w") is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", UnreachableError),
        ("RESOURCE_EXHAUSTED", ThrottledError),
        ("UNAUTHENTICATED", DeniedError),
        ("PERMISSION_DENIED", DeniedError),
        ("UNIMPLEMENTED", MissingError),
        ("INVALID_ARGUMENT", SourceError),
    ],
)
def test_errors_of_a_broker_are_those_of_the_runtime(code: str, kind: type[SourceError]) -> None:
    error = translate(TaskbrokerError(code, "why"))

    assert (type(error), error.code, error.message) == (kind, code, "why")


def told(brokers: Brokers) -> list[tuple[str, list[str], int]]:
    """What each call of a broker was: its name, the ids that it reports, and the tasks that it asks for."""
    return [
        (name, [update.id for update in request.updates], request.wanted if name == "ExchangeTasks" else 0)
        for _, name, request in brokers.calls
    ]


async def test_waiting_slots_share_a_call(brokers: Brokers, make: Callable[..., TaskbrokerSource]) -> None:
    brokers.exchanges = True
    brokers.tasks["a:1"] = ["one", "two", "three", "four"]
    source = make()
    first = await asyncio.gather(*(take(source) for _ in range(3)))
    assert told(brokers) == [("ExchangeTasks", [], 3)]

    brokers.calls.clear()
    for task, wanted in zip(first, (True, True, False), strict=True):
        source.want_next(task.token, wanted)
    await asyncio.gather(*(source.succeed(task.token, "null") for task in first))
    assert told(brokers) == [("ExchangeTasks", ["one", "two", "three"], 2)]
    following = [source.take_next(task.token) for task in first]
    assert [task is not None for task in following] == [True, False, False]


@pytest.mark.parametrize(("slots", "calls"), [(6, [6]), (12, [8, 4]), (32, [11, 11, 10])])
async def test_reports_are_divided_between_three_calls(
    brokers: Brokers, make: Callable[..., TaskbrokerSource], slots: int, calls: list[int]
) -> None:
    brokers.exchanges = True
    brokers.tasks["a:1"] = [f"task-{number}" for number in range(slots)]
    source = make()
    tasks = await asyncio.gather(*(take(source) for _ in range(slots)))
    brokers.calls.clear()
    await asyncio.gather(*(source.succeed(task.token, "null") for task in tasks))
    assert [len(ids) for _, ids, _ in told(brokers)] == calls


async def test_report_right_after_two_answers_is_sent(brokers: Brokers, make: Callable[..., TaskbrokerSource]) -> None:
    brokers.exchanges = True
    brokers.tasks["a:1"] = [f"task-{number}" for number in range(32)]
    source = make()
    first = await asyncio.gather(*(take(source) for _ in range(16)))

    async def work(task: LeasedTask | None) -> None:
        assert task is not None
        source.want_next(task.token, True)
        await source.succeed(task.token, "null")
        following = source.take_next(task.token)
        assert following is not None
        if task in first[:8]:
            await source.succeed(following.token, "null")

    # The slots of the first call report in the moment in which both calls end, the others never again.
    async with asyncio.timeout(60):
        await asyncio.gather(*(work(task) for task in first))


async def test_last_reports_to_a_published_broker_share_a_call(
    brokers: Brokers, make: Callable[..., TaskbrokerSource]
) -> None:
    brokers.tasks["a:1"] = ["one", "two", "three"]
    source = make()
    tasks = [await take(source) for _ in range(3)]
    brokers.calls.clear()
    await asyncio.gather(*(source.succeed(task.token, "null") for task in tasks))
    assert told(brokers) == [("SetBatchActivationStatus", ["one", "two", "three"], 0)]


async def test_error_of_a_shared_call_reaches_every_slot(
    brokers: Brokers, make: Callable[..., TaskbrokerSource]
) -> None:
    brokers.exchanges = True
    brokers.tasks["a:1"] = ["one", "two"]
    source = make()
    tasks = await asyncio.gather(*(take(source) for _ in range(2)))
    brokers.errors["a:1"] = "UNAVAILABLE"
    results = await asyncio.gather(*(source.succeed(task.token, "null") for task in tasks), return_exceptions=True)
    assert [type(result) for result in results] == [UnreachableError] * 2
    # They report again, and none is lost.
    brokers.errors.clear()
    await asyncio.gather(*(source.succeed(task.token, "null") for task in tasks))


async def test_task_for_a_slot_that_gave_up_is_kept(brokers: Brokers, make: Callable[..., TaskbrokerSource]) -> None:
    brokers.exchanges = True
    brokers.tasks["a:1"] = ["one", "two"]
    source = make()
    first = await take(source)
    source.want_next(first.token, True)
    reporting = asyncio.create_task(source.succeed(first.token, "null"))
    await asyncio.sleep(0)
    reporting.cancel()
    await asyncio.gather(reporting, return_exceptions=True)
    second = await take(source)
    assert second.activity is not None
    assert second.activity.id == "two"


async def test_task_that_waited_beyond_its_deadline_is_left_to_its_broker(
    brokers: Brokers, make: Callable[..., TaskbrokerSource], clock: Clock
) -> None:
    brokers.tasks["a:1"] = ["late"]
    source = make()
    source._keep(consumer.GivenTask("a:1", activation_named("early")))
    clock.now += DEADLINE
    assert (await take(source)).token.startswith("a:1/late/")


async def test_worker_asks_again_at_once_when_its_broker_holds_calls(brokers: Brokers, clock: Clock) -> None:
    def hold(seconds: float) -> None:
        clock.now += seconds

    brokers.exchanges, brokers.hold = True, hold
    source = TaskbrokerSource(TaskbrokerSettings(("a:1",), None, None), hold_seconds=5.0, clock=clock)
    assert await source.lease("w") is None
    assert brokers.waits == [2.0, 2.0, 1.0]


async def test_worker_waits_a_moment_at_each_of_several_brokers(brokers: Brokers, clock: Clock) -> None:
    def hold(seconds: float) -> None:
        clock.now += seconds

    brokers.exchanges, brokers.hold = True, hold
    source = TaskbrokerSource(TaskbrokerSettings(("a:1", "b:1"), None, None), hold_seconds=1.0, clock=clock)
    assert await source.lease("w") is None
    assert [(address, wait) for (address, *_), wait in zip(brokers.calls, brokers.waits, strict=True)] == [
        ("a:1", 0.5),
        ("b:1", 0.5),
    ]


async def test_worker_pauses_beside_a_broker_that_answers_at_once(brokers: Brokers) -> None:
    source = TaskbrokerSource(TaskbrokerSettings(("a:1",), None, None), hold_seconds=0.5)
    assert await source.lease("w") is None
    # Pauses of 0.1 s, growing: a fifth call would come after 0.8 s.
    assert 1 < len(brokers.asked()) <= 4
