"""5,000 pools on a real API server, with the operator as a process: until it rests, and what it costs at rest.

The control plane is etcd and kube-apiserver of this run. The pools are paused, so they need no source and no pods: what
is measured is the operator beside the API server's pages and watch events.
"""

from __future__ import annotations

import asyncio
import http.client
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from activity_operator.cluster.resources import POOLS
from tests.bench import beating_operator, request_counts
from tests.bench.api_server import ApiServer, RefusedError
from tests.bench.bench_cluster import CRD_FILE, CRDS, NAMESPACES, POOLS_NAMESPACE, SYSTEM, BenchCluster
from tests.bench.operator_at_rest import Window, measure, quiet
from tests.bench.operator_process import OperatorProcess, operating
from tests.bench.table import Row, at_most, number
from tests.bench.tls_fake import TlsFake, tls_fake
from tests.cluster import Cluster
from tests.cluster.control_plane import AUDIT_POLICY
from tests.cluster.progress import step
from tests.eventually import eventually
from tests.servers.control_plane import ControlPlane, control_plane, kubeconfig

ROOT = Path(__file__).parents[2]
POOL_COUNT = 5_000
#: The operator's resync interval (300 s by default), and the window, which thus has a sweep in it.
SWEEP_SECONDS = 60.0
WINDOW_SECONDS = 75.0
SETTLE_SECONDS = 600.0
GOAL_MILLISECONDS, GOAL_WRITES = 100.0, 0.0
#: Seconds until an answer of the operator's health port counts as missing.
ANSWER_SECONDS = 30.0
_AT_ONCE = 10
_ADMINISTRATOR, _OPERATOR = "administrator", "operator-under-measure"


def run() -> list[Row]:
    """Measure the time until 5,000 pools rest, and a window at rest with a sweep and a scrape."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async with _bench_cluster() as at, tls_fake(at.folder, hold_seconds=60.0) as fake:
        with step(f"{POOL_COUNT:,} pools"):
            await _make_pools(at.api, fake)
        began = time.monotonic()
        beats = at.folder / "beats"
        variables = {
            "ACTIVITYPOOL_SWEEP_SECONDS": f"{SWEEP_SECONDS:g}",
            beating_operator.VARIABLE: str(beats),
            "PYTHONPATH": str(ROOT),
        }
        async with operating(at, fake, beating_operator.__name__, **variables) as operator:
            with step("settling"):
                await _settled(at)
            settled = time.monotonic() - began
            with step(f"measuring for {WINDOW_SECONDS:g} s"):
                window = await measure(at, operator, WINDOW_SECONDS)
            # In a window of their own, because the probes cost the operator processor time.
            probed = time.monotonic()
            with step(f"probing for {WINDOW_SECONDS:g} s"), _answers(operator) as answers:
                scrape = await _scrape(operator)
            stands = beating_operator.longest(beats, probed)
    return _rows(settled, window, stands, answers, scrape)


@asynccontextmanager
async def _bench_cluster() -> AsyncIterator[BenchCluster]:
    """Start a control plane with the CRD, and the namespaces and users of a benchmark."""
    users = {f"token-of-{name}": name for name in (_ADMINISTRATOR, _OPERATOR)}
    with (
        tempfile.TemporaryDirectory(prefix="activitypool-bench-") as name,
        control_plane(users, audit_policy=AUDIT_POLICY) as plane,
    ):
        plane.wait_ready()
        folder = Path(name)
        administrator = _kubeconfig(plane, folder, _ADMINISTRATOR)
        cluster = Cluster(administrator, plane.audit_log, plane.kubectl, plane.kubectl, "embedded", "127.0.0.1")
        async with ApiServer(administrator) as api:
            await api.create(CRDS, "", yaml.safe_load(CRD_FILE.read_text(encoding="utf-8")))
            await eventually(
                "the ActivityPool resource is served",
                lambda: api.get(POOLS.path()),
                seconds=60,
                tolerate=(RefusedError,),
            )
            for namespace in (SYSTEM, POOLS_NAMESPACE):
                await api.create(NAMESPACES, "", {"metadata": {"name": namespace}})
            yield BenchCluster(cluster, api, _kubeconfig(plane, folder, _OPERATOR), folder)


def _kubeconfig(plane: ControlPlane, folder: Path, user: str) -> Path:
    return kubeconfig(folder / f"{user}.kubeconfig", plane.url, user, f"token-of-{user}", plane.ca_file)


async def _make_pools(api: ApiServer, fake: TlsFake) -> None:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def make(name: str) -> None:
        async with turn:
            arn = (await fake.call("CreateActivity", name=name))["activityArn"]
            spec = {
                "activityArn": arn,
                "handlerImage": "registry.invalid/handler:1",
                "maxWorkers": 10,
                "paused": True,
                "aws": {"endpointUrl": fake.url},
            }
            await api.create(POOLS, POOLS_NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    await asyncio.gather(*(make(f"pool-{number}") for number in range(POOL_COUNT)))


async def _settled(at: BenchCluster) -> None:
    """Wait until each pool's status was written, and nothing is written any more."""

    made = 0

    async def is_settled() -> bool:
        nonlocal made
        made = request_counts.writes(await request_counts.so_far(at.api), {POOLS.plural}).total()
        return made >= 2 * POOL_COUNT and await quiet(at)

    await eventually(
        "every pool rests",
        is_settled,
        seconds=SETTLE_SECONDS,
        every_seconds=1.0,
        details=lambda: f"{made:,} writes of pools, of which {POOL_COUNT:,} made them",
    )


@contextmanager
def _answers(operator: OperatorProcess) -> Iterator[list[float]]:
    """Yield a list that gets the seconds of one answer of /livez after the other."""
    found: list[float] = []
    ended = threading.Event()
    place = urlsplit(operator.health_url)

    def ask() -> None:
        while not ended.is_set():
            calling = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_SECONDS)
            began = time.perf_counter()
            calling.request("GET", "/livez")
            calling.getresponse().read()
            found.append(time.perf_counter() - began)
            calling.close()
            ended.wait(0.01)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield found
    finally:
        ended.set()
        asking.join(ANSWER_SECONDS)


async def _scrape(operator: OperatorProcess) -> float:
    """Let the window pass, with a scrape of the metrics in its middle; return the seconds that the scrape took."""
    await asyncio.sleep(WINDOW_SECONDS / 2)
    began = time.monotonic()
    await operator.metrics()
    took = time.monotonic() - began
    await asyncio.sleep(WINDOW_SECONDS / 2)
    return took


def _rows(settled: float, window: Window, stands: float, answers: list[float], scrape: float) -> list[Row]:
    pools = f"{POOL_COUNT:,} paused pools"
    own = request_counts.writes(window.by_user.get(_OPERATOR, request_counts.Counts()))
    spent = (window.after.cpu_seconds - window.before.cpu_seconds) / (60.0 * window.minutes)
    rests = f"{window.minutes * 60:.0f} s at rest, with a sweep every {SWEEP_SECONDS:g} s"
    return [
        Row(
            f"from the operator's start until {pools} rest",
            number(settled, "s"),
            how="every status is written once, then ten seconds pass without a write, which are part of the time.",
        ),
        at_most(
            f"longest standstill of the main loop, {pools}",
            1000 * stands,
            GOAL_MILLISECONDS,
            unit="ms",
            how=f"the latest beat of a task that sleeps 5 ms again and again, in another {rests}, and a scrape of "
            f"{scrape:.1f} s. Another process that takes the processor meanwhile is in it.",
        ),
        Row(
            f"longest answer of /livez, {pools}",
            number(1000 * max(answers), "ms"),
            how=f"of {len(answers)}, one after the other, in the same time; each takes several turns of the loop.",
        ),
        at_most(
            f"API writes a minute, {pools}, without the Lease",
            own.total() / window.minutes,
            GOAL_WRITES,
            unit="/min",
            how=f"the operator's by the audit log, {rests}: {request_counts.as_text(own)}; {window.terms} new terms.",
        ),
        Row(
            f"operator's memory (RSS), {pools}",
            number(window.rss_bytes / 1e6, "MB"),
            how=f"the largest of /proc's VmRSS, {rests}; up to then {window.after.peak_rss_bytes / 1e6:.0f} MB.",
        ),
        Row(
            f"operator's share of a core, {pools}",
            number(100.0 * spent, "%"),
            how=f"user and system time from /proc, {rests}.",
        ),
    ]
