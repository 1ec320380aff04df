"""The cost of 500 pools at zero: the API server's requests, the operator's memory and processor time."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace

from activity_operator.cluster.resources import LEASES
from tests.bench import request_counts
from tests.bench.bench_cluster import LEASE_NAME, SYSTEM, USER, BenchCluster, bench_cluster
from tests.bench.idle_pools import make_pools, settled
from tests.bench.operator_process import OperatorProcess, Usage, operating
from tests.bench.request_counts import AuditTail, Counts
from tests.bench.table import Row, at_most, number
from tests.bench.tls_fake import tls_fake
from tests.cluster.progress import step
from tests.eventually import eventually

POOLS = 500
#: The seconds for which the service holds an empty poll.
HOLD_SECONDS = 60.0
#: Length of the measurement, and the operator's resync interval (300 s by default): here it falls once into the window.
WINDOW_SECONDS = 120.0
#: Seconds between two readings of memory; the largest counts.
SAMPLE_SECONDS = 5.0
#: The cluster has settled after this many seconds without a write.
QUIET_SECONDS = 10.0
SETTLE_SECONDS = 240.0
GOAL_WRITES, GOAL_RSS_MEGABYTES, GOAL_CPU_SECONDS = 0.0, 200.0, 3.0

#: KEDA 2.21.0 with 500 ScaledObjects at zero, default settings, measured once on such a cluster: operator 247 MB and
#: adapter 104 MB, 3.0 s of CPU a minute (the operator alone), 1,204 PATCH and 45 PUT, 1,493 GET.
KEDA_WRITES, KEDA_READS, KEDA_MEGABYTES, KEDA_CPU_SECONDS = 1250.0, 1490.0, 351.0, 3.0


@dataclass(frozen=True, slots=True)
class Window:
    """What happened during the measurement: requests by the metrics and by the audit log, and the operator's usage.

    `terms` counts the leader's terms that began in it; each begins with some writes of its own. On a machine so slow
    that the operator loses its Lease, these writes are in the measurement.
    """

    minutes: float
    all_requests: Counts
    by_user: dict[str, Counts]
    before: Usage
    after: Usage
    rss_bytes: int
    polls: int
    terms: int


def run() -> list[Row]:
    """Measure 500 pools at zero for two minutes after they have settled."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async with bench_cluster() as at, tls_fake(at.folder, hold_seconds=HOLD_SECONDS) as fake:
        with step(f"{POOLS} pools"):
            pools = await make_pools(at.api, fake, "rest", POOLS)
        async with operating(at, fake, ACTIVITYPOOL_SWEEP_SECONDS=f"{WINDOW_SECONDS:g}") as operator:
            with step("settling"):
                await settled(at.api, fake, pools, SETTLE_SECONDS)
                await eventually(
                    "a cluster without writes", lambda: quiet(at), seconds=SETTLE_SECONDS, every_seconds=0.0
                )
            with step(f"measuring for {WINDOW_SECONDS:g} s"):
                window = await measure(at, operator)
    return _rows(window, logged=at.cluster.audit_log is not None)


async def quiet(at: BenchCluster) -> bool:
    """Whether no object that an operator writes, and no ReplicaSet, was written for a while."""
    before = await request_counts.so_far(at.api)
    await asyncio.sleep(QUIET_SECONDS)
    since = request_counts.between(before, await request_counts.so_far(at.api))
    return not request_counts.writes(since, request_counts.OPERATOR_WRITES | {"replicasets"})


async def measure(at: BenchCluster, operator: OperatorProcess, seconds: float = WINDOW_SECONDS) -> Window:
    """Measure for `seconds` and return what happened."""
    loop = asyncio.get_running_loop()
    audit, requests, before = AuditTail(at.cluster.audit_log), await request_counts.so_far(at.api), operator.usage()
    began, largest, first_term = loop.time(), before.rss_bytes, await _term(at)
    while (left := began + seconds - loop.time()) > 0:
        await asyncio.sleep(min(left, SAMPLE_SECONDS))
        largest = max(largest, operator.usage().rss_bytes)
    after, minutes = operator.usage(), (loop.time() - began) / 60
    since = request_counts.between(requests, await request_counts.so_far(at.api))
    state = await operator.fake.state()
    polls = sum(activity["open_polls"] for activity in state["activities"].values())
    terms = await _term(at) - first_term
    return Window(minutes, since, audit.by_user(), before, after, largest, polls, terms)


async def _term(at: BenchCluster) -> int:
    """Return how often the operator's Lease has changed hands."""
    lease = await at.api.get(LEASES.path(SYSTEM, LEASE_NAME)) or {"spec": {}}
    return int(lease["spec"].get("leaseTransitions") or 0)


def _rows(window: Window, *, logged: bool) -> list[Row]:
    """Return the rows of a window. Without an audit log, all users' requests are counted as the operator's."""
    own = window.by_user.get(USER, Counter()) if logged else window.all_requests
    return [
        _writes(window, request_counts.writes(own), logged),
        _reads(window, request_counts.reads(own), logged),
        _memory(window),
        _processor(window),
    ]


def _writes(window: Window, own: Counts, logged: bool) -> Row:
    everybody = request_counts.writes(window.all_requests)
    by = (
        f"the operator's by the audit log: {request_counts.as_text(own)}"
        if logged
        else "no audit log tells the users apart"
    )
    leases = sum(count for (verb, what), count in window.by_user.get(USER, Counter()).items() if what == "leases")
    row = at_most(
        f"API writes a minute, {POOLS} pools at zero, without the Lease",
        own.total() / window.minutes,
        GOAL_WRITES,
        unit="/min",
        peer=f"KEDA 2.21: {number(KEDA_WRITES, '/min')} (quoted)",
        how=f"apiserver_request_total over {window.minutes * 60:.0f} s after settling, all users' writes of what the "
        f"operator may write: {request_counts.as_text(everybody)}; {by}; its Lease: {leases / window.minutes:.0f}/min, "
        f"{window.terms} new terms.",
    )
    return _beside(row, own.total() / window.minutes, KEDA_WRITES)


def _reads(window: Window, own: Counts, logged: bool) -> Row:
    asked = Counter({what: count for what, count in own.items() if what[1] != "leases"})
    whose = "by the audit log, the operator's" if logged else "all users'"
    a_minute = asked.total() / window.minutes
    return Row(
        f"API GETs and LISTs a minute, {POOLS} pools at zero, without the Lease",
        number(a_minute, "/min"),
        f"KEDA 2.21: {number(KEDA_READS, '/min')} (quoted)",
        f"{a_minute / KEDA_READS:.3f}x",
        how=f"{whose}: {request_counts.as_text(asked)}; with a sweep every {WINDOW_SECONDS:g} s (300 by default).",
    )


def _memory(window: Window) -> Row:
    megabytes = window.rss_bytes / 1e6
    row = at_most(
        f"operator's memory (RSS), {POOLS} pools at zero",
        megabytes,
        GOAL_RSS_MEGABYTES,
        unit="MB",
        peer=f"KEDA 2.21, operator and adapter: {number(KEDA_MEGABYTES, 'MB')} (quoted)",
        how=f"the largest of /proc's VmRSS every {SAMPLE_SECONDS:g} s, with {window.polls} open polls over TLS in "
        f"{window.after.open_files} open files; at its start it took up to {window.after.peak_rss_bytes / 1e6:.0f} MB.",
    )
    return _beside(row, megabytes, KEDA_MEGABYTES)


def _processor(window: Window) -> Row:
    seconds = (window.after.cpu_seconds - window.before.cpu_seconds) / window.minutes
    row = at_most(
        f"operator's processor time a minute, {POOLS} pools at zero",
        seconds,
        GOAL_CPU_SECONDS,
        unit="s/min",
        peer=f"KEDA 2.21, operator alone: {number(KEDA_CPU_SECONDS, 's/min')} (quoted)",
        how=f"user and system time of the process from /proc, over {window.minutes * 60:.0f} s with one sweep; every "
        f"minute it answers and opens {window.polls} polls again, which KEDA does not.",
    )
    return _beside(row, seconds, KEDA_CPU_SECONDS)


def _beside(row: Row, ours: float, peer: float) -> Row:
    return replace(row, against=f"{ours / peer:.2f}x; {row.against}")
