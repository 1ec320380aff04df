"""One run: a scenario, its faults, and its result."""

import itertools
import os
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tests.eventually import NotInTimeError, eventually
from tests.faults.calls import POLLS, WORKER
from tests.faults.end_state import Harm, State, end_state, harm
from tests.faults.fault_cluster import FaultCluster
from tests.faults.harness import SHARED_TASK_SECONDS, TASK_SECONDS, FaultHarness, whole_harness_of
from tests.faults.leaks import leaks
from tests.faults.plan import CRASHES, Fault, Kind
from tests.faults.replicas import ELECTION, HASTENED, ForkServer
from tests.faults.scenarios import Scenario

#: Seconds for which a state must not change to count as the end, longer than a new leader mistrusts reports; and the
#: most seconds until the expected state.
STILL_SECONDS = 6.0
CONVERGE_SECONDS = 45.0
#: Seconds for which a worker waits for the answer to its poll (65), and so the longest that its shutdown is delayed.
POLL_SECONDS = 70.0
#: Seconds from which a run's states and logs are kept although it passed.
SLOW_SECONDS = 25.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run. `wrong` is its difference from the run without faults, "" if there is none."""

    scenario: str
    faults: tuple[Fault, ...]
    state: State
    harm: Harm
    seconds: float
    calls: tuple[str, ...]
    events: tuple[str, ...]
    struck: bool
    ended: int = 0
    wrong: str = ""
    log: str = field(default="", repr=False)
    way: tuple[str, ...] = field(default=(), repr=False)
    reads: tuple[str, ...] = field(default=(), repr=False)

    @property
    def good(self) -> bool:
        """Whether it ended as expected and did no harm."""
        return not (self.wrong or self.harm.done)


async def play(
    cluster: FaultCluster,
    fork_server: ForkServer,
    scenario: Scenario,
    faults: tuple[Fault, ...] = (),
    *,
    expected: State | None = None,
    replicas: int = 1,
    **settings: float,
) -> Run:
    """Play a scenario with faults. Without an expected end, the end is the first state that does not change."""
    number = f"{os.getpid()}-{next(_numbers)}"
    count = max(replicas, scenario.replicas)
    timing = {**(HASTENED if count > 1 else ELECTION), **settings}
    async with whole_harness_of(scenario.kind, cluster, fork_server, number, count, **timing) as set_up:
        wrong, began = "", time.monotonic()
        way: list[str] = []
        # HeartbeatSeconds covers the death of one leader: with two crashes in a run, it is twice as long.
        crashes = sum(fault.kind in CRASHES for fault in faults)
        task_seconds = TASK_SECONDS if count == 1 else SHARED_TASK_SECONDS
        set_up.task_seconds = task_seconds * max(crashes + scenario.deaths, 1)
        set_up.more_seconds = task_seconds * max(crashes - 1, 0)
        set_up.more_seconds += POLL_SECONDS if any(map(_silences_a_poll, faults)) else 0.0
        try:
            await scenario.prelude(set_up)
            set_up.take(faults)
            set_up.plan.arm()
            began = time.monotonic()
            await scenario.act(set_up)
            state, wrong = await _converge(set_up, expected, way)
        except (AssertionError, TimeoutError) as error:
            wrong = str(error)
            state = await end_state(set_up)
        took = time.monotonic() - began - (STILL_SECONDS if expected is None else 0.0)
        wrong = "; ".join(filter(None, (wrong, *complaints(set_up), *await leaks(set_up))))
        set_up.plan.disarm()
        run = Run(
            scenario.name,
            faults,
            state,
            harm(set_up),
            took,
            tuple(set_up.plan.calls),
            tuple(set_up.plan.events),
            len(set_up.plan.struck) == len(faults),
            sum(replica.ended for replica in set_up.replicas),
            wrong,
            reads=tuple(set_up.plan.reads),
        )
        slow = took >= SLOW_SECONDS
        return replace(run, log=_logs(set_up), way=tuple(way)) if slow or not run.good else run


def _doubts_signals(state: State) -> bool:
    """Whether the operator misses reports: without a fault that is a slow machine, and no end."""
    conditions = (state["status"] or {}).get("conditions") or ()
    return any(kind == "SignalsStale" and word == "True" for kind, word, _ in conditions)


def _silences_a_poll(fault: Fault) -> bool:
    return fault.kind in {Kind.HANG, Kind.HALF_OPEN} and fault.name in {f"{WORKER} {poll}" for poll in POLLS}


def complaints(set_up: FaultHarness) -> list[str]:
    """Return what must not happen in any run: an operator that ended by itself, errors of the node, a second writer."""
    ended = [f"{replica.name} ended by itself" for replica in set_up.replicas if replica.ended]
    return [*ended, *set_up.kubelet.troubles, *set_up.misclosed(), *set_up.former_leader_writes()]


async def _converge(set_up: FaultHarness, expected: State | None, way: list[str]) -> tuple[State, str]:
    """Wait for the expected state or a steady one; return it and its difference.

    `way` collects the differences meanwhile.
    """
    patience = CONVERGE_SECONDS + set_up.more_seconds
    since, last = time.monotonic(), await end_state(set_up)

    async def converged() -> bool:
        nonlocal since, last
        found = await end_state(set_up)
        if found != last:
            since, last = time.monotonic(), found
            way.append(f"{datetime.now(UTC):%H:%M:%S} {difference(expected or {}, found)}")
        if expected is None:
            return time.monotonic() - since >= STILL_SECONDS and not _doubts_signals(last)
        return last == expected

    try:
        await eventually("the state is as expected", converged, seconds=patience, every_seconds=0.2)
    except NotInTimeError:
        rest = f"it never came to rest in {patience:g} s"
        return last, rest if expected is None else difference(expected, last)
    return last, ""


def judged(
    harness: FaultHarness, name: str, wrong: list[str], seconds: float, *, ends: int = 0, measured: str = ""
) -> Run:
    """Judge a run that is not compared with another: every execution succeeds, and `ends` processes end by themselves.

    `wrong` is what its scenario found; `measured` is its measurement.
    """
    outcomes = harness.outcomes()
    ended = sum(replica.ended for replica in harness.replicas)
    wrong = [*wrong, *harness.kubelet.troubles, *harness.former_leader_writes()]
    wrong += [f"execution {one} ended as {how}" for one, how in outcomes.items() if how != "SUCCEEDED"]
    if ended != ends:
        wrong.append(f"{ended} processes ended by themselves, not {ends}")
    found = harm(harness)
    return Run(
        scenario=name,
        faults=(),
        state={"executions": outcomes},
        harm=found,
        seconds=seconds,
        calls=(),
        events=(),
        struck=True,
        wrong="; ".join(wrong),
        log=_logs(harness) if wrong or found.done else "",
        way=(measured,) if measured else (),
    )


def difference(expected: State, found: State) -> str:
    """Return the difference in one line."""
    names = [name for name in expected if expected[name] != found.get(name)]
    return "; ".join(f"{name}: expected {expected[name]}, found {found.get(name)}" for name in names)


def _logs(set_up: FaultHarness) -> str:
    parts = []
    for replica in set_up.replicas:
        lines = replica.log.read_text(errors="replace").splitlines() if replica.log.exists() else []
        parts += [f"--- {replica.name}, killed {replica.killed} times, ended {replica.ended} times", *lines[-60:]]
    return "\n".join(parts)
