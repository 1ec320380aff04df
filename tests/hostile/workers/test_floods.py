"""Floods of connections, bytes and tokens: honest workers still get answers, and the resources are released.

`tests/integration/reports` checks the limits of one source; here many sources flood an operator as it ships.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from activity_operator.reports.authentication import MAX_REVIEWS
from activity_worker.contract import TOKEN_AUDIENCE
from tests.eventually import eventually, eventually_sync
from tests.faults.lateness import Lateness, measured_lateness
from tests.hostile.workers.attacked_cluster import AttackedCluster, HonestWorker, Pod
from tests.hostile.workers.background import Background
from tests.hostile.workers.flood import FloodPlan
from tests.hostile.workers.oracle import check, neighbours
from tests.hostile.workers.test_tokens import tell
from tests.hostile.workers.wire import Answer, TlsConnection, request, say
from tests.servers.parent import die_with_parent

#: Seconds within which an honest worker must get an answer; after ten it would give up and reconnect.
ANSWERED_SECONDS = 8.0
#: Seconds after which a worker retries when its token could not be checked (the operator's Retry-After).
AGAIN_SECONDS = 1.0
#: Seconds after which the operator has closed every stalled connection (its own limits are 10, and 2 to linger).
GIVEN_UP_SECONDS = 40.0
#: The most MB by which the operator may grow.
GROWTH_MB = 160
PODS = [f"127.0.1.{number}" for number in range(1, 51)]


def sockets(attacked: AttackedCluster) -> int:
    """Return how many files the operator has open."""
    return sum(1 for _ in Path(f"/proc/{attacked.pid}/fd").iterdir())


def memory_mb(attacked: AttackedCluster) -> float:
    """Return the operator's resident memory."""
    lines = Path(f"/proc/{attacked.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def stood_still(lateness: Lateness, began: float, ended: float) -> float:
    """Return for how many seconds of this time (Unix seconds) this process itself was stalled."""
    return sum(max(min(at, ended) - max(at - late, began), 0.0) for at, late in tuple(lateness.late))


class Guard:
    """Compares before and after: sockets, memory, honest workers, and the neighbour's state."""

    def __init__(self, attacked: AttackedCluster, background: Background, lateness: Lateness) -> None:
        self.attacked = attacked
        self.lateness = lateness
        self._background = background
        self._before = background.do(neighbours(attacked))
        self._sockets, self._memory = sockets(attacked), memory_mb(attacked)
        for one in (attacked.honest, attacked.mate):
            one.slowest = 0.0
            self.answered_again(one)

    def answered_again(self, one: HonestWorker) -> None:
        """Wait until a report that was sent from now on is answered."""
        heard = one.answered
        self._background.do(eventually("honest workers are answered", lambda: one.answered >= heard + 2, seconds=30.0))

    def held(self) -> None:
        """Raise AssertionError when something has changed; open sockets have some time to be closed."""
        for one in (self.attacked.honest, self.attacked.mate):
            self.answered_again(one)
            assert not one.wrong
            self._answered_in_time(one.slowest)
        grown = memory_mb(self.attacked) - self._memory
        slowest = max(self.attacked.honest.slowest, self.attacked.mate.slowest)
        print(f"memory {grown:+.0f} MB, slowest answer {slowest:.2f} s")
        assert grown < GROWTH_MB

        def given_up() -> bool:
            # The operator may also keep as many connections to the API server as it checks tokens at once.
            return sockets(self.attacked) <= self._sockets + MAX_REVIEWS

        self._background.do(eventually("sockets are given back", given_up, seconds=GIVEN_UP_SECONDS))
        self._background.do(check(self.attacked, self._before))

    def _answered_in_time(self, slowest: float) -> None:
        """Raise AssertionError when an answer took too long, after the deduction of this process's own worst stall."""
        late = max((stood_still(self.lateness, at - slowest, at) for at, _ in tuple(self.lateness.late)), default=0.0)
        assert slowest - late < ANSWERED_SECONDS, (
            f"{slowest:.2f} s, of which this process was stalled for at most {late:.2f} s"
        )


@pytest.fixture
def lateness(background: Background) -> Iterator[Lateness]:
    """The lateness of the loop in which honest workers run: it shares this machine with the floods."""
    context = measured_lateness()
    yield background.enter(context)
    background.leave(context)


@pytest.fixture
def guard(here: AttackedCluster, background: Background, lateness: Lateness) -> Guard:
    return Guard(here, background, lateness)


def many(stack: ExitStack, count: int, connect: Callable[[], Any]) -> list[Any]:
    """Open up to `count` connections; refused ones are left out."""
    found = []
    for _ in range(count):
        with suppress(OSError):
            found.append(stack.enter_context(connect()))
    return found


def test_half_open_connections_of_one_pod_and_of_fifty_are_closed(here: AttackedCluster, guard: Guard) -> None:
    head = request(b"x" * 100, here.attacker.token)
    with ExitStack() as stack:
        silent = many(stack, 700, lambda: here.address.plain(PODS[0]))
        met: list[TlsConnection] = many(stack, 300, lambda: here.address.connect(PODS[1]))
        for pod in PODS[2:]:
            silent += many(stack, 6, partial(here.address.plain, pod))
            met += many(stack, 6, partial(here.address.connect, pod))
        assert len(silent) + len(met) > 1500
        for number, line in enumerate(met):
            # In turn: nothing, half a head, a head and half a body.
            line.send((b"", head[:60], head[:-50])[number % 3])
        guard.answered_again(here.honest)
        guard.answered_again(here.mate)
        guard.held()


def flood(line: TlsConnection, data: bytes, ended: Event) -> None:
    """Send the same bytes repeatedly, without reading answers, until `ended` is set or the connection breaks."""
    line.sock.settimeout(0.5)
    with line, suppress(OSError):
        while not ended.is_set():
            line.sock.sendall(data)


@pytest.fixture
def sending(here: AttackedCluster) -> Iterator[Callable[[list[bytes], float], None]]:
    """Send each piece repeatedly on a connection of its own, for the given seconds."""
    ended = Event()
    threads: list[Thread] = []

    def send(pieces: list[bytes], seconds: float) -> None:
        for number, piece in enumerate(pieces):
            line = here.address.connect(PODS[number % len(PODS)])
            threads.append(Thread(target=flood, args=(line, piece, ended)))
            threads[-1].start()
        time.sleep(seconds)
        ended.set()

    yield send
    ended.set()
    for thread in threads:
        thread.join(10.0)


def test_pipelined_reports_with_unread_answers_do_not_fill_memory(
    here: AttackedCluster, guard: Guard, sending: Callable[[list[bytes], float], None]
) -> None:
    report = request(say(here.attacker, next(here.sequence)), here.attacker.token)
    upgrade = request(b"", here.attacker.token, extra=b"Connection: upgrade\r\nUpgrade: websocket\r\n") + b"x" * 65536
    sending([report * 100, report * 100, upgrade, upgrade], 3.0)
    guard.held()


async def flooded(
    attacked: AttackedCluster, threads: int, seconds: float, sources: list[str], requests: list[bytes]
) -> Any:
    """Flood from another process; return its answers by status."""
    plan = FloodPlan(
        attacked.address.port, attacked.address.name, attacked.authority, sources, threads, seconds, requests
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hostile.workers.flood",
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    output, _ = await process.communicate(plan.to_json())
    return json.loads(output)


def test_one_pod_that_reports_at_full_speed_delays_no_other_worker(
    here: AttackedCluster, background: Background, guard: Guard
) -> None:
    pod = here.attackers[1]
    leases = [{"id": f"{number:032x}", "ageSeconds": 1.0} for number in range(1000)]
    claims = [f"{number:032x}" for number in range(1000)]
    reports = [
        say(pod, next(here.sequence), incarnation=f"flood {number}", leases=leases, claims=claims, released=claims)
        for number in range(16)
    ]
    requests = [request(report, pod.token) for report in reports]
    answers = background.do(flooded(here, 200, 3.0, PODS[:1], requests))
    print(answers)
    guard.held()


def test_flood_of_forged_tokens_does_not_block_a_new_worker(
    here: AttackedCluster, background: Background, guard: Guard
) -> None:
    pod = here.attacker
    head, _, signature = pod.token.rpartition(".")
    forged = [f"{head}.{number:08x}{signature[8:]}" for number in range(4000)]
    requests = [request(say(pod, 1), token) for token in forged]
    flooding = asyncio.run_coroutine_threadsafe(flooded(here, 100, 3.0, PODS, requests), background.loop)
    times: list[tuple[float, float]] = []
    while not flooding.done():
        # A token that the operator has not seen yet, like that of a worker that has just started.
        token = background.do(here.api.token(pod.namespace, audiences=[TOKEN_AUDIENCE], bound=_pod(pod)))
        began = time.time()
        _become_known(here, pod, token)
        times.append((began, time.time()))
    guard.held()
    took = [ended - began for began, ended in times]
    print(flooding.result(), f"{len(took)} newcomers, the slowest was known after {max(took):.2f} s")
    assert (
        max(ended - began - stood_still(guard.lateness, began, ended) for began, ended in times) < ANSWERED_SECONDS
    ), took


def _become_known(here: AttackedCluster, pod: Pod, token: str) -> None:
    """Report as a worker does: retry when the API server did not answer the token review in time."""

    def answer() -> Answer | None:
        given = tell(here, pod, token)
        return None if given.status == 503 else given

    given = eventually_sync("the report is answered", answer, seconds=GIVEN_UP_SECONDS, every_seconds=AGAIN_SECONDS)
    assert given.status == 200, given


def _pod(pod: Pod) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": pod.name, "uid": pod.uid}}
