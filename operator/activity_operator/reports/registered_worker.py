"""PURE: what the registry keeps of one worker, and what the worker's next report shows beside it."""

from dataclasses import dataclass, field

from activity_operator.core.observation import SlotUse, WorkerFacts
from activity_operator.core.task_counts import TaskCounts, counts_since
from activity_operator.reports import report_path
from activity_worker.contract import Counters, Report, WorkerState

Key = tuple[str, str]


@dataclass(slots=True)
class RegisteredWorker:
    """One pod's worker: the facts of its last report, and what they leave out.

    `sequence` is that of the last report, `acked` the highest event sequence received, `former` the earlier
    incarnations. `exited`: the last report said how the worker ended. `worked`: this incarnation has reported while it
    ran. `silence` is the last silence that has ended, `outage` the outage that explains the present one. `early`: the
    worker may report before its interval ends.
    """

    key: Key
    pod_name: str
    facts: WorkerFacts
    sequence: int
    acked: int
    exited: bool
    worked: bool = False
    former: tuple[str, ...] = ()
    silence: report_path.Silence | None = None
    outage: report_path.Outage | None = None
    early: bool = False
    counters: Counters = field(default_factory=Counters)

    def is_late(self, report: Report) -> bool:
        """Whether a later report, or a report of a later incarnation, has come before this one."""
        if self.facts.incarnation == report.incarnation:
            return report.sequence <= self.sequence
        return report.incarnation in self.former

    def recent_silence(self, now: float) -> report_path.Silence | None:
        """Return the worker's silence if it lasts or has just ended."""
        lasting = report_path.silence(self.facts, now)
        if lasting is not None or self.silence is None or not self.silence.counts(now):
            return lasting
        return self.silence

    def counts_since_last(self, report: Report, now: float, *, known_before: bool, replaced: bool) -> TaskCounts:
        """Return what the worker did since its last report.

        A worker that reported to an earlier leader gives a base line: that leader has counted what it did before. A new
        container's counters begin at 0, so all of them are new.
        """
        if replaced or (not known_before and report.sequence == 1):
            return counts_since(Counters(), report.counters)
        if not known_before:
            return counts_since(report.counters, report.counters)
        before = self.facts
        # Only a running worker takes tasks; the busy slots of any other finish theirs.
        slots = before.slots if before.state is WorkerState.RUNNING else before.busy
        return counts_since(self.counters, report.counters, slots * max(now - before.reported_at, 0.0))

    def slot_use(self, report: Report, now: float, counts: TaskCounts) -> SlotUse | None:
        """Return what the slots did since the last report; None for a worker that counts nothing."""
        seconds = now - self.facts.reported_at
        decreased = report.counters.busy_seconds < self.counters.busy_seconds
        if report.counters == Counters() or seconds <= 0 or decreased:
            return None
        return SlotUse(
            seconds=seconds,
            busy_share=min(counts.busy_seconds / (seconds * max(report.slots, 1)), 1.0),
            received=counts.received,
            empty_polls=counts.empty_polls,
            joined=self.facts.state is WorkerState.STARTING,
        )


def may_change_decision(before: WorkerFacts, after: WorkerFacts) -> bool:
    """Whether the difference may change a decision, or the worker may have counted as stalled in between."""
    was_silent = after.reported_at - before.reported_at > report_path.STALLED_INTERVALS * before.interval_seconds
    return was_silent or _decisive(before) != _decisive(after)


def _decisive(facts: WorkerFacts) -> tuple[object, ...]:
    return facts.state, facts.slots, facts.busy, facts.leases, facts.failed_start, facts.poll_trouble


def failed_start(report: Report) -> str:
    """Return why the worker ended with an error, "" if it runs or ended well."""
    if report.exit is None or not report.exit.code:
        return ""
    return report.exit.error or f"exit code {report.exit.code}"


def facts_of(
    report: Report, now: float, interval: float, start_error: str = "", use: SlotUse | None = None
) -> WorkerFacts:
    """Return the facts of a report that came at `now`; `interval` is in seconds, until the worker's next report."""
    return WorkerFacts(
        pod_uid=report.pod_uid,
        incarnation=report.incarnation,
        state=report.state,
        slots=report.slots,
        busy=report.busy,
        open_polls=report.open_polls,
        idle_seconds=report.idle_seconds,
        reported_at=now,
        interval_seconds=interval,
        leases=len(report.leases),
        failed_start=start_error,
        poll_trouble=report.poll_trouble,
        use=use,
        running_seconds=sum(lease.age_seconds for lease in report.leases),
        busy_seconds=report.counters.busy_seconds,
        ended=report.counters.succeeded + report.counters.failed,
        answers=report.counters.received + report.counters.empty_polls,
        runtime=report.runtime,
    )
