"""The last report of each worker by pod UID, the directives for it, and the lifecycle events of each pool.

This module has no clock and no I/O. A pool without reports costs no time.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from activity_operator.core.observation import ReportPathFacts, WorkerFacts
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import TaskWindow
from activity_operator.reports import report_path
from activity_operator.reports.early_reports import EarlyReports
from activity_operator.reports.event_ring import EventRing, PoolEvent
from activity_operator.reports.intervals import DEFAULT_RATE, FASTEST_SECONDS, plan_intervals
from activity_operator.reports.registered_worker import RegisteredWorker, facts_of, failed_start, may_change_decision
from activity_operator.reports.task_windows import TaskWindows
from activity_worker.contract import Directive, Report, WorkerState

Key = tuple[str, str]

#: Most workers that one operator remembers, in all and in one namespace. Their pods must exist, so quotas bind first.
MAX_WORKERS = 20_000
MAX_WORKERS_PER_NAMESPACE = 10_000
#: Number of a pod's earlier incarnations to remember, so that their late reports are ignored.
REMEMBERED_INCARNATIONS = 4

_STATES_TO_CHANGE = {
    Directive.DRAIN: frozenset({WorkerState.STARTING, WorkerState.RUNNING}),
    Directive.RUN: frozenset({WorkerState.DRAINING}),
    Directive.STANDBY: frozenset({WorkerState.DRAINING}),
    Directive.KEEP: frozenset(),
}
#: Share of its interval before which a worker's report counts as early.
EARLY_SHARE = 0.9


class RegistryFullError(Exception):
    """The registry has no room for another worker; the message names the limit."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The registry's answer to one report.

    `fresh` is False for a repeated or late report, which changes nothing. `ack` is the highest event sequence received.
    `replaced` is the previous incarnation in the same pod if this is the first report of a new one, else "".
    `early_report`: the worker may report a change of its slots before the interval ends.
    """

    fresh: bool
    ack: int
    directive: Directive
    next_report_seconds: float
    replaced: str = ""
    early_report: bool = False


class WorkerRegistry:
    """The workers of all pools.

    `on_change(namespace, pool)` is called when a report may change the pool's decision, and `on_counts` with what a
    worker did since its last report, once for each fresh report. `node_of` and `revision_of` get a pod's UID.
    """

    def __init__(
        self,
        on_change: Callable[[str, str], None],
        *,
        rate: float = DEFAULT_RATE,
        jitter: Callable[[], float] = random.random,
        max_workers: int = MAX_WORKERS,
        max_per_namespace: int = MAX_WORKERS_PER_NAMESPACE,
        node_of: Callable[[str], str] = lambda _: "",
        on_counts: Callable[[Key, TaskCounts], None] = lambda *_: None,
        revision_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._on_change = on_change
        self._rate = rate
        self._jitter = jitter
        self._max_workers = max_workers
        self._max_per_namespace = max_per_namespace
        self._node_of = node_of
        self._on_counts = on_counts
        self._revision_of = revision_of
        self._tasks = TaskWindows()
        self._workers: dict[str, RegisteredWorker] = {}
        self._pools: dict[Key, dict[str, RegisteredWorker]] = {}
        self._per_namespace: dict[str, int] = {}
        self._directives: dict[Key, Mapping[str, Directive]] = {}
        self._hurried: set[str] = set()
        self._rings: dict[Key, EventRing] = {}
        self._leader_since = 0.0
        self._expected = 0
        self._early_reports = EarlyReports(rate)
        self._outages: tuple[report_path.Outage, ...] = ()
        self._outages_at = float("-inf")

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def interval_seconds(self) -> float:
        """Seconds between two reports of a worker, by the number of workers that report or are expected to."""
        return plan_intervals(max(len(self._workers), self._expected), 0, self._rate).normal

    def begin_term(self, now: float, expected_workers: int) -> None:
        """Reset for a new term that starts at `now`. `expected_workers`: number of existing worker pods.

        An earlier term of this process leaves nothing: its events are in the status, and another leader may have
        changed its directives.
        """
        for known in (self._workers, self._pools, self._per_namespace, self._hurried, self._rings, self._directives):
            known.clear()
        self._tasks.clear()
        self._leader_since, self._expected = now, expected_workers
        self._outages, self._outages_at = (), float("-inf")

    def record(self, report: Report, now: float, *, hurry: bool = False) -> Receipt:
        """Store one report of an authenticated worker; `hurry` asks for the next report soon.

        A report is late if its sequence is not higher than the last one of its incarnation, or if a newer incarnation
        has reported. Late reports get an answer and are otherwise ignored. Raises `RegistryFullError`.
        """
        known = self._workers.get(report.pod_uid)
        if known is not None and known.is_late(report):
            return self._answer(known, fresh=False, hurry=hurry)
        key = (report.namespace, report.pool)
        worker, replaced = self._find_or_add(key, report, known)
        has_news = self._record_events(worker, report, now)
        before, was_exited = worker.facts, worker.exited
        first = known is None or bool(replaced)
        counts = worker.counts_since_last(report, now, known_before=known is not None, replaced=bool(replaced))
        use = None if first else worker.slot_use(report, now, counts)
        worker.counters = report.counters
        self._on_counts(key, counts)
        self._tasks.add(key, self._revision_of(report.pod_uid), counts, now)
        self._settle_early(worker, now)
        if known is not None and (silence := report_path.silence(before, now)) is not None:
            worker.silence = replace(silence, ended=now)
        worker.outage = None
        worker.exited = report.exit is not None
        # A worker sends its first report after the import of its handler. If the import fails, its only report has an
        # exit.
        worker.worked = worker.worked or not worker.exited
        start_error = failed_start(report) if not worker.worked else ""
        worker.facts = facts_of(report, now, before.interval_seconds, start_error, use)
        receipt = self._answer(worker, fresh=True, hurry=hurry, replaced=replaced)
        worker.early = self._early_reports.grant(key, now)
        receipt = replace(receipt, early_report=worker.early)
        worker.facts = replace(worker.facts, interval_seconds=receipt.next_report_seconds)
        if (
            first
            or has_news
            or worker.exited != was_exited
            or report.claims
            or may_change_decision(before, worker.facts)
        ):
            self._on_change(*key)
        return receipt

    def workers(self, namespace: str, pool: str) -> tuple[WorkerFacts, ...]:
        """Return the last report of each worker of the pool."""
        return tuple(worker.facts for worker in self._pools.get((namespace, pool), {}).values())

    def tasks(self, namespace: str, pool: str, now: float) -> TaskWindow:
        """Return what the pool's workers did in the last minutes."""
        return self._tasks.window((namespace, pool), now)

    def events(self, namespace: str, pool: str) -> tuple[PoolEvent, ...]:
        """Return the pool's lifecycle events, oldest first."""
        return tuple(self._rings.get((namespace, pool), ()))

    def add_event(
        self, key: Key, name: str, message: str, *, at: float, pod: str = "", exit_code: int | None = None
    ) -> None:
        """Add an event that only the cluster shows (OOMKilled, Evicted, stalled …). `on_change` is not called."""
        self._rings.setdefault(key, EventRing()).add(name, message, at, pod, exit_code)

    def set_directives(self, namespace: str, pool: str, directives: Mapping[str, Directive]) -> None:
        """Set the directives of one pool's workers, by pod UID; the pool's other workers get RUN from now on."""
        if self._directives.get((namespace, pool)) != directives:
            self._directives[namespace, pool] = dict(directives)

    def end_stand_by(self, namespace: str, pool: str) -> None:
        """Let the pool's workers poll that stand by; the other directives stay."""
        if (known := self._directives.get((namespace, pool))) is not None:
            kept = {uid: one for uid, one in known.items() if one is not Directive.STANDBY}
            self._directives[namespace, pool] = kept

    def directive(self, key: Key, pod_uid: str) -> Directive:
        """Return the worker's directive; KEEP until this term's first decision about the pool.

        A new leader knows neither the pause nor the drains before that decision. RUN would make paused and cordoned
        workers poll again.
        """
        known = self._directives.get(key)
        return Directive.KEEP if known is None else known.get(pod_uid, Directive.RUN)

    def report_path(self, namespace: str, pool: str, now: float, deadline_seconds: float) -> ReportPathFacts:
        """Return what is known of the pool's report path. `deadline_seconds` is its `stalled.deadlineSeconds`.

        The silences of all workers are compared once a second at most.
        """
        if now - self._outages_at >= 1.0:
            self._find_outages(now)
        problem = report_path.new_term_problem(now, self._leader_since, self.interval_seconds, self._expected)
        for outage in self._outages:
            if not problem and outage.covers(namespace) and outage.lasts(now, deadline_seconds):
                problem = str(outage)
        members = self._pools.get((namespace, pool), {})
        excused = dict.fromkeys(members, problem) if problem else {}
        for uid, worker in members.items():
            if worker.outage is not None and worker.outage.lasts(now, deadline_seconds):
                excused[uid] = str(worker.outage)
        return ReportPathFacts(problem, excused)

    def forget(self, pod_uid: str) -> None:
        """Drop a worker whose pod is gone. `on_change` is not called, because the caller has seen the pod go."""
        worker = self._workers.pop(pod_uid, None)
        self._hurried.discard(pod_uid)
        if worker is None:
            return
        self._leave(worker, pod_uid)

    def forget_pool(self, namespace: str, pool: str) -> None:
        """Drop the events and directives of a pool that is gone; its workers are dropped with their pods."""
        self._tasks.forget((namespace, pool))
        self._rings.pop((namespace, pool), None)
        self._directives.pop((namespace, pool), None)

    def _find_outages(self, now: float) -> None:
        """Find the common silences. A silent worker keeps its outage until it reports, even if the others report."""
        self._outages_at, self._outages = now, ()
        silences = {uid: silence for uid, worker in self._workers.items() if (silence := worker.recent_silence(now))}
        if len(silences) < report_path.LEAST_SILENT:
            return
        placed = [
            report_path.PlacedWorker(uid, worker.key[0], self._node_of(uid), silences.get(uid))
            for uid, worker in self._workers.items()
            if worker.facts.state is not WorkerState.STOPPED
        ]
        self._outages = report_path.find_outages(placed)
        for outage in reversed(self._outages):
            for uid in outage.pods:
                self._workers[uid].outage = outage

    def _leave(self, worker: RegisteredWorker, pod_uid: str) -> None:
        pool = self._pools[worker.key]
        del pool[pod_uid]
        if not pool:
            del self._pools[worker.key]
        left = self._per_namespace[worker.key[0]] - 1
        if left:
            self._per_namespace[worker.key[0]] = left
        else:
            del self._per_namespace[worker.key[0]]

    def _find_or_add(self, key: Key, report: Report, known: RegisteredWorker | None) -> tuple[RegisteredWorker, str]:
        """Return the reporting worker, new or known, and the incarnation that it replaces ("" if none)."""
        if known is None:
            self._make_room(key[0])
            worker = RegisteredWorker(key, report.pod_name, facts_of(report, 0.0, FASTEST_SECONDS), 0, 0, exited=False)
            self._workers[report.pod_uid] = worker
            self._pools.setdefault(key, {})[report.pod_uid] = worker
            self._per_namespace[key[0]] = self._per_namespace.get(key[0], 0) + 1
            return worker, ""
        if known.facts.incarnation == report.incarnation:
            return known, ""
        replaced = known.facts.incarnation
        known.former = (*known.former, replaced)[-REMEMBERED_INCARNATIONS:]
        known.acked, known.exited, known.worked = 0, False, False
        return known, replaced

    def _make_room(self, namespace: str) -> None:
        if len(self._workers) >= self._max_workers:
            raise RegistryFullError(f"the operator remembers {self._max_workers} workers at most")
        if self._per_namespace.get(namespace, 0) >= self._max_per_namespace:
            raise RegistryFullError(f"the operator remembers {self._max_per_namespace} workers a namespace at most")

    def _record_events(self, worker: RegisteredWorker, report: Report, now: float) -> bool:
        """Store the report's new events; return whether one of them is news for the pool."""
        worker.sequence = report.sequence
        new = [event for event in report.events if event.sequence > worker.acked]
        if not new:
            return False
        worker.acked = max(event.sequence for event in new)
        ring = self._rings.setdefault(worker.key, EventRing())
        news = [ring.add_reported(event, worker.pod_name, report.exit, now) for event in new]
        return any(news)

    def _settle_early(self, worker: RegisteredWorker, now: float) -> None:
        """Take back the permission for an early report, unless this report has just used it."""
        if worker.early and now - worker.facts.reported_at >= EARLY_SHARE * worker.facts.interval_seconds:
            self._early_reports.give_back(worker.key, now)
        worker.early = False

    def _answer(self, worker: RegisteredWorker, *, fresh: bool, hurry: bool, replaced: str = "") -> Receipt:
        pod_uid = worker.facts.pod_uid
        directive = self.directive(worker.key, pod_uid)
        hurried = hurry or worker.facts.state in _STATES_TO_CHANGE[directive]
        if hurried:
            self._hurried.add(pod_uid)
        else:
            self._hurried.discard(pod_uid)
        planned = plan_intervals(len(self._workers), len(self._hurried), self._rate)
        seconds = planned.order(hurried=hurried, jitter=self._jitter())
        return Receipt(fresh, worker.acked, directive, seconds, replaced)
