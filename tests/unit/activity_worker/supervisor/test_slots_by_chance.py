"""A slot pool under chance: cordons, grants, stand-by, deaths of processes, failed polls, and a stop in between."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import Grant, LeasedTask, Reply, lease_id
from activity_worker.errors import UnreachableError
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.sources.memory import MemorySource
from activity_worker.subprocess.session import HandlerExitedError
from activity_worker.supervisor.claims import ClaimBook
from activity_worker.supervisor.granted_leases import GrantedLeases
from tests.unit.activity_operator.virtual_time import VirtualLoop, elapsed

SLOTS = 2
HOLD_SECONDS = 1.0
TASK_SECONDS = 1.0
START_SECONDS = 2.0
STOP_SECONDS = 1.0
GRACE_SECONDS = 1.0
LOOK_SECONDS = 0.1
#: Waits for a process that begin at one moment: more are a loop without a wait.
MAX_WAITS = 10


@dataclass
class Faults:
    """What must not happen, in the order in which it did."""

    seen: list[str] = field(default_factory=list)

    def check(self, holds: bool, words: str) -> None:
        if not holds:
            self.seen.append(f"{elapsed():g} s: {words}")


class ChanceSource(MemorySource):
    """A source that looks for polls beside tasks, and whose answer to a conclusion brings the next task."""

    def __init__(self, faults: Faults) -> None:
        super().__init__("arn", hold_seconds=HOLD_SECONDS)
        self.faults = faults
        self.polls: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.leased: list[str] = []
        self.concluded_times: Counter[str] = Counter()
        self.wanted: set[str] = set()
        self.following: dict[str, LeasedTask] = {}

    async def lease(self, worker_name: str) -> LeasedTask | None:
        self.polls[worker_name] += 1
        self.faults.check(self.polls[worker_name] == 1, "two polls in one slot")
        self.faults.check(not self.busy[worker_name], "a poll beside a task")
        try:
            task = await super().lease(worker_name)
        finally:
            self.polls[worker_name] -= 1
        if task is not None:
            self.leased.append(task.token)
        return task

    def granted(self, token: str) -> Grant:
        """Return a lease that the operator has taken."""
        self._leased.add(token)
        self.leased.append(token)
        return Grant(lease_id(token), token, "{}")

    def want_next(self, token: str, wanted: bool) -> None:
        if wanted:
            self.wanted.add(token)

    def take_next(self, token: str) -> LeasedTask | None:
        return self.following.pop(token, None)

    async def succeed(self, token: str, output: str) -> None:
        self.concluded_times[token] += 1
        await asyncio.sleep(0)
        await super().succeed(token, output)
        if token in self.wanted and self._waiting:
            self.following[token] = following = self._waiting.popleft()
            self._leased.add(following.token)
            self.leased.append(following.token)

    async def fail(self, token: str, error: str, cause: str) -> None:
        self.concluded_times[token] += 1
        await asyncio.sleep(0)
        await super().fail(token, error, cause)


class ChanceRunner:
    """Stands for a handler's process, which dies and comes again."""

    def __init__(self, source: ChanceSource, faults: Faults) -> None:
        self.source, self.faults = source, faults
        self.there, self.gone = asyncio.Event(), asyncio.Event()
        self.stopped = False
        self.waits: Counter[float] = Counter()

    @property
    def ready(self) -> bool:
        return self.there.is_set()

    async def wait_ready(self) -> None:
        self.waits[elapsed()] += 1
        if self.waits[elapsed()] > MAX_WAITS:
            self.faults.check(False, "waits for the process without an end")
            self.there.set()
        await self.there.wait()

    def die(self) -> None:
        if self.ready:
            self.there.clear()
            self.gone.set()
            self.gone = asyncio.Event()
            asyncio.get_running_loop().call_later(START_SECONDS, self._come)

    def _come(self) -> None:
        if not self.stopped:
            self.there.set()

    async def start(self) -> None:
        self.stopped = False
        await asyncio.sleep(START_SECONDS)
        self.there.set()

    async def stop(self) -> None:
        self.stopped = True
        self.there.clear()
        await asyncio.sleep(STOP_SECONDS)

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        name = request.worker.worker_name
        self.faults.check(not self.stopped, "a task in a slot whose runner has stopped")
        self.faults.check(not self.source.polls[name], "a task beside a poll")
        self.source.busy[name] += 1
        self.faults.check(self.source.busy[name] == 1, "two tasks in one slot")
        try:
            await self.there.wait()
            dies = asyncio.create_task(self.gone.wait())
            try:
                await asyncio.wait((dies,), timeout=TASK_SECONDS)
                if dies.done():
                    raise HandlerExitedError("the handler's process ended")
            finally:
                dies.cancel()
            respond.handler_ended = True
            await respond.success(None)
        finally:
            self.source.busy[name] -= 1


async def virtually(holds: Callable[[], bool], most_seconds: float) -> None:
    """Wait until something holds, in virtual time."""
    for _ in range(round(most_seconds / LOOK_SECONDS)):
        if holds():
            return
        await asyncio.sleep(LOOK_SECONDS)


class Chance:
    """A pool, its granted leases, and an operator; each step is a word."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.source = ChanceSource(self.faults)
        self.runners: list[ChanceRunner] = []
        self.book = ClaimBook()
        self.tokens = (f"granted-{number}" for number in itertools.count())
        self.names = (f"slot{number}" for number in itertools.count())
        self.offered: dict[str, str] = {}
        self.stops = False
        self.pool = SlotPool(
            self.source,
            runner_factory=self._runner,
            slots=SLOTS,
            name_prefix="pod",
            suffix=lambda: next(self.names),
            polling=Polling.forever(),
            options=TaskOptions(cancel_grace_seconds=GRACE_SECONDS),
        )
        self.handover = GrantedLeases(self.pool, self.book, heartbeat_seconds=10.0, on_change=lambda: None)
        self.steps: dict[str, Callable[[], object]] = {
            "put": lambda: self.source.put("{}"),
            "refuse poll": lambda: self.source.refuse("lease", UnreachableError("ConnectionRefused")),
            "drain": lambda: self._drain(True),
            "serve": self._serve,
            "stand by": lambda: self.pool.stand_by(True),
            "poll": lambda: self.pool.stand_by(False),
            "offer": lambda: self._reply(offer=True),
            "answer": self._reply,
            "grant": self._grant,
            "kill first": lambda: self._kill(0),
            "kill last": lambda: self._kill(-1),
        }

    def _runner(self) -> ChanceRunner:
        self.runners.append(ChanceRunner(self.source, self.faults))
        return self.runners[-1]

    def _kill(self, number: int) -> None:
        self.runners[number].die()

    def _serve(self) -> None:
        if not self.stops:
            self._drain(False)

    def _drain(self, on: bool) -> None:
        (self.pool.cordon if on else self.pool.uncordon)()
        self.handover.cordon(on)

    def _grant(self) -> None:
        self.handover.grant([self.source.granted(next(self.tokens))])

    def _reply(self, *, offer: bool = False) -> None:
        """Answer a report: grant what is claimed, and offer one lease or none."""
        asked = tuple(self.book.claims)
        granted = tuple(self.source.granted(self.offered.pop(one)) for one in asked if one in self.offered)
        if offer:
            token = next(self.tokens)
            self.offered[lease_id(token)] = token
        reply = Reply(term=1, next_report_seconds=1.0, offers=tuple(self.offered), granted=granted)
        self.handover.grant(self.book.answered(reply, asked))

    async def play(self, steps: "Sequence[Step]", drain_seconds: float) -> list[str]:
        """Take the steps, then stop as a worker does; return the faults."""
        await self.pool.start()
        for word, delay, pause in steps:
            asyncio.get_running_loop().call_later(delay, self.steps[word])
            await asyncio.sleep(pause)
        began, self.stops = elapsed(), True
        self._drain(True)
        await virtually(lambda: self.pool.drained and self.handover.settled, drain_seconds)
        await virtually(lambda: not self.source.open_polls, 2 * HOLD_SECONDS)
        await self.pool.stop(timeout_seconds=0.0)
        await self.handover.close()
        self.faults.check(elapsed() < began + drain_seconds + HOLD_SECONDS + 10 * GRACE_SECONDS, "a long stop")
        # A reply to a report under way may still bring grants, until the last report.
        await asyncio.sleep(max(DELAYS))
        await self.handover.close()
        for token in self.source.leased:
            self.faults.check(self.source.concluded_times[token] == 1, f"not concluded once: {token}")
        self.faults.check(not self.handover.held(elapsed()), "a lease is held after the end")
        return self.faults.seen


WORDS = ("put", "refuse poll", "drain", "serve", "stand by", "poll") + (
    "offer",
    "answer",
    "grant",
    "kill first",
    "kill last",
) * 2
#: Seconds until a step is taken, and from a step to the next one.
DELAYS, PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0), (0.0, 0.1, 0.5, 1.0, 3.0, 11.0)
Step = tuple[str, float, float]
STEPS = st.lists(st.tuples(*map(st.sampled_from, (WORDS, DELAYS, PAUSES))), max_size=30)


#: A claim is answered while the runner of its slot stops.
LATE_GRANT: "list[Step]" = [("stand by", 0.0, 3.0), ("offer", 0.0, 0.1), ("answer", 0.5, 0.0)]
#: A slot is woken while it waits for its process.
WOKEN: "list[Step]" = [("kill first", 0.0, 1.5), ("serve", 0.0, 0.1)]


@example(LATE_GRANT, 0.0)
@example(WOKEN, 100.0)
@given(STEPS, st.sampled_from([0.0, 0.2, 100.0]))
@settings(max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pool_under_chance_runs_each_task_once_in_a_slot_of_its_own(steps: list[Step], drain: float) -> None:
    async def played() -> list[str]:
        return await Chance().play(steps, drain)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(played()) == []
