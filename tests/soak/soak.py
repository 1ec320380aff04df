"""One soak: load and faults for some minutes, then rest, then the verdict."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import aiohttp

from tests.eventually import NotInTimeError, eventually
from tests.faults.fault_cluster import FaultCluster
from tests.faults.replicas import ForkServer
from tests.soak import growth
from tests.soak.draw import DEATHS, DrawnFault, strikes
from tests.soak.fault_injector import LURK_SECONDS, FaultInjector
from tests.soak.growth import Sample
from tests.soak.harness import SoakHarness, harness
from tests.soak.pools import POOLS, Pool, arrivals
from tests.soak.samples import SCRAPE_SECONDS, sample
from tests.soak.verdict import Findings, InjectedFault, operators_deaths
from tests.soak.watch import Watch

SAMPLE_SECONDS = 5.0
PROGRESS_SECONDS = 30.0
#: Seconds after SIGCONT during which a process's metrics still show the effect of its stop.
THAWED_SECONDS = 5.0
#: Share of a run after which no operator is killed any more, so that its last processes live long enough to be judged.
DEADLY_SHARE = 0.4
#: Minutes from which a run must be able to judge growth, with the full warm-up.
LONG_MINUTES = 8.0
#: Seconds for all executions to end: one may wait for a heartbeat time-out, behind others.
FINISH_SECONDS = 240.0
REST_SECONDS = 120.0
#: Seconds after the last change until timed work is done too: a status that counts ended executions, and a new leader's
#: first summary of tasks, which it writes a minute after its first reports.
SETTLE_SECONDS = 75.0
#: Seconds in which writes are counted.
QUIET_SECONDS = 60.0
SHORT_QUIET_SECONDS = 20.0
QUIET_TRIES = 4
#: Pools with short tasks, for the execution that shows that a fault is over.
CANARIES = tuple(pool for pool in POOLS if pool.name in {"zero-short", "minimum"})


@dataclass(slots=True)
class Soak:
    """A running soak. `say` prints a line."""

    harness: SoakHarness
    minutes: float
    seed: int
    say: Callable[[str], None]
    injector: FaultInjector = field(init=False)
    watch: Watch = field(init=False)
    began: float = field(init=False)
    struck: list[InjectedFault] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    thawed: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.injector, self.watch, self.began = FaultInjector(self.harness), Watch(self.harness), time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    @property
    def long(self) -> bool:
        """Whether the run is long enough to be judged in full."""
        return self.minutes >= LONG_MINUTES

    async def play(self) -> Findings:
        """Apply load and faults, wait for rest, and return the findings."""
        await self._until("an operator leads and all pools are polled for", self._polled, REST_SECONDS)
        self.began = time.monotonic()
        async with _beside(self.watch.run(), self._sample(), self._progress()):
            async with _beside(*(self._load(pool) for pool in POOLS), self._strike()):
                await asyncio.sleep(self.minutes * 60.0)
            self.harness.fault = ""
            for faults in self.harness.call_faults.values():
                faults.clear()
            self.say("no more load and no more faults; what runs ends")
            await self._until("all executions have ended", self._all_ended, FINISH_SECONDS)
            await self._until("all pools are at rest", self._at_rest, REST_SECONDS)
            writes = await self._quiet_writes()
        found = self._found(writes)
        return replace(found, troubles=(*found.troubles, *await asyncio.to_thread(self.harness.former_leader_writes)))

    async def _load(self, pool: Pool) -> None:
        generator = random.Random(f"{self.seed} {pool.name}")
        for arrival in arrivals(pool, generator):
            await asyncio.sleep(arrival.wait)
            for seconds, fails in arrival.tasks:
                self.harness.begin(pool, seconds, fails)

    async def _strike(self) -> None:
        for strike in strikes(random.Random(f"{self.seed} faults")):
            await asyncio.sleep(strike.gap)
            if strike.kind in DEATHS and self.elapsed > self.minutes * 60.0 * DEADLY_SHARE:
                continue
            await self._inject(strike)

    async def _inject(self, strike: DrawnFault) -> None:
        one = InjectedFault(strike, time.monotonic(), in_flight=self.harness.statuses()["RUNNING"])
        self.struck.append(one)
        victim: str | None = None
        try:
            victim = await self.injector.strike(strike)
        finally:
            one.over = time.monotonic()
            if victim is None:
                self.struck.remove(one)
            else:
                one.victim = victim
                self.thawed[victim] = one.over
                self.watch.expect_recovery(one, self.harness.begin(CANARIES[len(self.struck) % len(CANARIES)], 0.1, 0))

    async def _sample(self) -> None:
        timeout = aiohttp.ClientTimeout(total=SCRAPE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                for replica in self.harness.replicas:
                    thawed = self.thawed.get(replica.name, 0.0)
                    if replica.name in self.injector.frozen or time.monotonic() - thawed < THAWED_SECONDS:
                        continue
                    found = await sample(session, replica, time.monotonic())
                    if found is not None and replica.name not in self.injector.frozen:
                        self.samples.append(found)
                await asyncio.sleep(SAMPLE_SECONDS)

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self.say(self._line())

    def _line(self) -> str:
        statuses = self.harness.statuses()
        ended = ", ".join(f"{count} {status.lower()}" for status, count in sorted(statuses.items()))
        processes = "; ".join(_process(life[-1]) for life in growth.lives(self.samples) if self._lives(life[-1]))
        owing = f"; status untrue: {', '.join(sorted(self.watch.untruthful))}" if self.watch.untruthful else ""
        return f"{len(self.struck)} faults; executions {ended}; {processes}{owing}"

    def _lives(self, last: Sample) -> bool:
        return any(one.name == last.replica and one._pid == last.pid for one in self.harness.replicas)

    async def _until(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until `holds`; a time-out after `seconds` becomes an error of the run."""
        try:
            await eventually(what, holds, seconds=seconds, every_seconds=0.2, details=self._excerpt)
        except NotInTimeError as error:
            self.troubles.append(str(error))

    def _excerpt(self) -> str:
        running = [number for number in self.harness.runs if self.harness.status(number) == "RUNNING"]
        names = [f"{number} of {self.harness.runs[number].pool.name}" for number in running[:5]]
        return ", ".join(names)

    def _polled(self) -> bool:
        return all(self.harness.fake.open_polls(pool.arn) for pool in POOLS)

    def _all_ended(self) -> bool:
        return not self.harness.statuses()["RUNNING"]

    def _at_rest(self) -> bool:
        least = sum(pool.spec.get("minWorkers", 0) for pool in POOLS)
        return self.watch.settled and len(self.harness.node.workers) == least

    async def _quiet_writes(self) -> Counter[str]:
        """Return the writes at rest.

        A new leader writes to every pool once, so the leader must not change meanwhile.
        """
        for _ in range(QUIET_TRIES):
            await asyncio.sleep(SETTLE_SECONDS)
            before, terms = self._writes(), await self.harness.changes_of_leader()
            await asyncio.sleep(self.quiet_seconds)
            writes = self._writes() - before
            if await self.harness.changes_of_leader() == terms:
                break
        return writes

    @property
    def quiet_seconds(self) -> float:
        """Seconds for which writes are counted at the end."""
        return QUIET_SECONDS if self.long else SHORT_QUIET_SECONDS

    def _writes(self) -> Counter[str]:
        return sum((faults.writes for faults in self.harness.call_faults.values()), Counter[str]())

    def _found(self, writes: Counter[str]) -> Findings:
        made = self.harness
        ends = {replica.name: replica.ends for replica in made.replicas}
        made.node.deaths += operators_deaths(self.struck, ends, LURK_SECONDS + 1.0)
        interrupted = [*zip(made.node.when_interrupted, made.node.interrupted, strict=True)]
        interrupted += [(at, f"a handler was cancelled: {whose}") for at, whose in made.seen.cancelled]
        ended = [f"{one.name} ended by itself {one.ended} times" for one in made.replicas if one.ended]
        loaded = [one for one in self.samples if one.at <= self.began + self.minutes * 60.0]
        warm_up = growth.WARM_UP_SECONDS if self.long else growth.SHORT_WARM_UP_SECONDS
        least = growth.LEAST_SECONDS if self.long else growth.SHORT_LEAST_SECONDS
        return Findings(
            struck=self.struck,
            statuses=made.statuses(),
            attempts=made.attempts(),
            seen=made.evidence(),
            interrupted=interrupted,
            growth=growth.lines(loaded, warm_up, least),
            quiet_writes_a_minute=sum(writes.values()) * 60.0 / self.quiet_seconds,
            quiet_writes=writes,
            troubles=(*self.troubles, *made.node.troubles, *ended),
            must_judge_growth=self.long,
        )


def _process(last: Sample) -> str:
    lag = "-" if last.lag is None else f"{last.lag * 1000:.0f} ms"
    leads = " leads," if last.leads else ""
    return f"{last.replica[-1]}:{leads} {last.rss / 1024:.0f} MB, {last.files:.0f} files, lag {lag}"


@asynccontextmanager
async def _beside(*works: "asyncio._CoroutineLike[None]") -> AsyncIterator[None]:
    """Run these coroutines beside the context; a failure of one ends it, and all end with it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def soak(
    cluster: FaultCluster, fork_server: ForkServer, minutes: float, seed: int, say: Callable[[str], None]
) -> AsyncIterator[Soak]:
    """Set up a soak's harness."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(harness(cluster, fork_server, f"soak-{os.getpid()}"))
        with suppress(asyncio.CancelledError):
            yield Soak(made, minutes, seed, say)
