"""One report in, one reply out: the registry stores the report, the handover answers its part about leases."""

from collections.abc import Callable

from activity_operator.leases.handover import LeaseAnswers, LeaseHandover
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Directive, Reply, Report


class ReportHandler:
    """Answers reports of authenticated workers. `term()` is the leader's term; `now()` is in Unix seconds."""

    def __init__(
        self, registry: WorkerRegistry, handover: LeaseHandover, *, term: Callable[[], int], now: Callable[[], float]
    ) -> None:
        self._registry = registry
        self._handover = handover
        self._term = term
        self._now = now

    async def answer(self, report: Report) -> Reply:
        """Store the report and return the reply; raises `RegistryFullError`."""
        now = self._now()
        key = (report.namespace, report.pool)
        receipt = self._registry.record(report, now, hurry=self._handover.waiting(key))
        handed = LeaseAnswers()
        if receipt.fresh:
            # A pool without a decision of this term may be paused, so its workers get no offer either.
            cordoned = receipt.directive not in {Directive.RUN, Directive.STANDBY}
            handed = await self._handover.answer(report, now, cordoned=cordoned)
        return Reply(
            term=self._term(),
            next_report_seconds=receipt.next_report_seconds,
            # Read the directive again: it may have changed while the handover waited for the API server.
            directive=self._registry.directive(key, report.pod_uid).for_state(report.state),
            ack=receipt.ack,
            early_report=receipt.early_report,
            offers=handed.offers,
            granted=handed.granted,
            refused=handed.refused,
            released=handed.released,
        )
