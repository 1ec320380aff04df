"""Too much of everything: an honest worker is answered all the same, and what was taken is given back.

What one source may take is tested in `tests/integration/reports`; here many take it, of an operator as it ships.
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

from activity_operator.workers.authentication import MAX_REVIEWS
from activity_worker.contract import TOKEN_AUDIENCE
from tests.eventually import eventually, eventually_sync
from tests.faults.beat import Beat, beating
from tests.hostile.workers.background import Background
from tests.hostile.workers.flood import Orders
from tests.hostile.workers.oracle import check, neighbours
from tests.hostile.workers.test_tokens import tell
from tests.hostile.workers.wire import Answer, Line, request, say
from tests.hostile.workers.world import Honest, Pod, World
from tests.servers.parent import die_with_parent

#: Seconds within which an honest worker is answered whatever happens; after ten it would give up and connect anew.
ANSWERED_SECONDS = 8.0
#: Seconds after which a worker asks again whose token could not be checked (the operator's Retry-After).
AGAIN_SECONDS = 1.0
#: Seconds after which the operator has given up everything that does not move (its own limits are 10, and 2 to linger).
GIVEN_UP_SECONDS = 40.0
#: MB by which the operator may have grown after any of this.
GROWTH_MB = 160
PODS = [f"127.0.1.{number}" for number in range(1, 51)]


def sockets(world: World) -> int:
    """Return how many files the operator has open."""
    return sum(1 for _ in Path(f"/proc/{world.pid}/fd").iterdir())


def memory_mb(world: World) -> float:
    """Return the operator's resident memory."""
    lines = Path(f"/proc/{world.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def stood_still(beat: Beat, began: float, ended: float) -> float:
    """Return for how much of this time (Unix seconds) this process had no turn and could see no answer."""
    return sum(max(min(at, ended) - max(at - late, began), 0.0) for at, late in tuple(beat.late))


class Guard:
    """What is compared before and after: sockets, memory, honest workers, and all that nobody may touch."""

    def __init__(self, world: World, background: Background, beat: Beat) -> None:
        self.world = world
        self.beat = beat
        self._background = background
        self._before = background.do(neighbours(world))
        self._sockets, self._memory = sockets(world), memory_mb(world)
        for one in (world.honest, world.mate):
            one.slowest = 0.0
            self.answered_again(one)

    def answered_again(self, one: Honest) -> None:
        """Wait until a report that was sent from now on is answered."""
        heard = one.answered
        self._background.do(eventually("honest workers are answered", lambda: one.answered >= heard + 2, seconds=30.0))

    def held(self) -> None:
        """Raise AssertionError when something is not as it was; sockets have their time to be given up."""
        for one in (self.world.honest, self.world.mate):
            self.answered_again(one)
            assert not one.wrong
            self._answered_in_time(one.slowest)
        grown = memory_mb(self.world) - self._memory
        slowest = max(self.world.honest.slowest, self.world.mate.slowest)
        print(f"memory {grown:+.0f} MB, slowest answer {slowest:.2f} s")
        assert grown < GROWTH_MB

        def given_up() -> bool:
            # Besides, the operator may keep as many connections to the API server as it checks tokens at once.
            return sockets(self.world) <= self._sockets + MAX_REVIEWS

        self._background.do(eventually("sockets are given back", given_up, seconds=GIVEN_UP_SECONDS))
        self._background.do(check(self.world, self._before))

    def _answered_in_time(self, slowest: float) -> None:
        """Raise AssertionError when an answer took too long, even if it fell on our own worst moment."""
        late = max((stood_still(self.beat, at - slowest, at) for at, _ in tuple(self.beat.late)), default=0.0)
        assert slowest - late < ANSWERED_SECONDS, f"{slowest:.2f} s, at most {late:.2f} s of them ours"


@pytest.fixture
def beat(background: Background) -> Iterator[Beat]:
    """How late the loop is that honest workers live in: it shares this machine with the floods."""
    context = beating()
    yield background.enter(context)
    background.leave(context)


@pytest.fixture
def guard(here: World, background: Background, beat: Beat) -> Guard:
    return Guard(here, background, beat)


def many(stack: ExitStack, count: int, connect: Callable[[], Any]) -> list[Any]:
    """Open many connections, as far as the other side lets us."""
    found = []
    for _ in range(count):
        with suppress(OSError):
            found.append(stack.enter_context(connect()))
    return found


def test_a_thousand_half_open_connections_of_one_pod_and_of_fifty_end_by_themselves(here: World, guard: Guard) -> None:
    head = request(b"x" * 100, here.attacker.token)
    with ExitStack() as stack:
        silent = many(stack, 700, lambda: here.door.plain(PODS[0]))
        met: list[Line] = many(stack, 300, lambda: here.door.connect(PODS[1]))
        for pod in PODS[2:]:
            silent += many(stack, 6, partial(here.door.plain, pod))
            met += many(stack, 6, partial(here.door.connect, pod))
        assert len(silent) + len(met) > 1500
        for number, line in enumerate(met):
            # Nothing, half a head, a head and half a body.
            line.send((b"", head[:60], head[:-50])[number % 3])
        guard.answered_again(here.honest)
        guard.answered_again(here.mate)
        guard.held()


def flood(line: Line, data: bytes, ended: Event) -> None:
    """Send the same over and over, without reading what is answered, until told to stop or stopped."""
    line.sock.settimeout(0.5)
    with line, suppress(OSError):
        while not ended.is_set():
            line.sock.sendall(data)


@pytest.fixture
def sending(here: World) -> Iterator[Callable[[list[bytes], float], None]]:
    """Send each piece over and over on a connection of its own, for so many seconds."""
    ended = Event()
    threads: list[Thread] = []

    def send(pieces: list[bytes], seconds: float) -> None:
        for number, piece in enumerate(pieces):
            line = here.door.connect(PODS[number % len(PODS)])
            threads.append(Thread(target=flood, args=(line, piece, ended)))
            threads[-1].start()
        time.sleep(seconds)
        ended.set()

    yield send
    ended.set()
    for thread in threads:
        thread.join(10.0)


def test_reports_in_a_row_whose_answers_nobody_reads_fill_no_memory(
    here: World, guard: Guard, sending: Callable[[list[bytes], float], None]
) -> None:
    report = request(say(here.attacker, next(here.sequence)), here.attacker.token)
    upgrade = request(b"", here.attacker.token, extra=b"Connection: upgrade\r\nUpgrade: websocket\r\n") + b"x" * 65536
    sending([report * 100, report * 100, upgrade, upgrade], 3.0)
    guard.held()


async def flooded(world: World, threads: int, seconds: float, sources: list[str], requests: list[bytes]) -> Any:
    """Have another process flood; return its answers by status."""
    orders = Orders(world.door.port, world.door.name, world.authority, sources, threads, seconds, requests)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hostile.workers.flood",
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    said, _ = await process.communicate(orders.to_json())
    return json.loads(said)


def test_one_pod_that_reports_as_fast_as_it_can_slows_nobody_down(
    here: World, background: Background, guard: Guard
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


def test_a_flood_of_forged_tokens_keeps_no_worker_from_being_known(
    here: World, background: Background, guard: Guard
) -> None:
    pod = here.attacker
    head, _, signature = pod.token.rpartition(".")
    forged = [f"{head}.{number:08x}{signature[8:]}" for number in range(4000)]
    requests = [request(say(pod, 1), token) for token in forged]
    flooding = asyncio.run_coroutine_threadsafe(flooded(here, 100, 3.0, PODS, requests), background.loop)
    times: list[tuple[float, float]] = []
    while not flooding.done():
        # A token that the operator has not seen yet, as a worker's is that has just started.
        token = background.do(here.api.token(pod.namespace, audiences=[TOKEN_AUDIENCE], bound=_pod(pod)))
        began = time.time()
        _become_known(here, pod, token)
        times.append((began, time.time()))
    guard.held()
    took = [ended - began for began, ended in times]
    print(flooding.result(), f"{len(took)} newcomers, the slowest was known after {max(took):.2f} s")
    assert max(ended - began - stood_still(guard.beat, began, ended) for began, ended in times) < ANSWERED_SECONDS, took


def _become_known(here: World, pod: Pod, token: str) -> None:
    """Report as a worker does, which asks again when the API server did not say in time whose token it is."""

    def answer() -> Answer | None:
        given = tell(here, pod, token)
        return None if given.status == 503 else given

    given = eventually_sync("the report is answered", answer, seconds=GIVEN_UP_SECONDS, every_seconds=AGAIN_SECONDS)
    assert given.status == 200, given


def _pod(pod: Pod) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": pod.name, "uid": pod.uid}}
