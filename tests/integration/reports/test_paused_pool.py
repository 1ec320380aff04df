"""A paused pool's worker, as a real process, over a change of leader."""

import json
from contextlib import AsyncExitStack

from activity_operator.core.observation import WorkerFacts
from activity_worker.contract import Directive, WorkerState
from tests.eventually import eventually
from tests.integration.reports.harness import KEY, Operator, TaskReportHarness, succeeded


def facts(operator: Operator) -> WorkerFacts | None:
    """Return the facts of the one worker's last report to this operator."""
    return next(iter(operator.registry.workers(*KEY)), None)


async def test_draining_worker_polls_no_more_under_a_new_leader(harness: TaskReportHarness) -> None:
    gate = harness.folder / "gate"
    text = json.dumps({"gate": str(gate)})
    async with AsyncExitStack() as stack:
        async with harness.operator() as first:
            (running,) = harness.fake.schedule(harness.arn, text)
            await stack.enter_async_context(harness.worker("waits_at_the_gate"))
            await eventually("a task runs", lambda: (found := facts(first)) is not None and found.busy == 1)
            first.directive = Directive.DRAIN
            first.look()
            await eventually(
                "the worker drains without an open poll",
                lambda: (
                    (found := facts(first)) is not None and found.state is WorkerState.DRAINING and not found.open_polls
                ),
            )
        second = harness.make_operator(decides=False)
        await stack.enter_async_context(harness.run(second))
        (waiting,) = harness.fake.schedule(harness.arn, text)
        await eventually("the worker has reported five times to the new leader", lambda: len(second.reports) >= 5)
        assert {report.state for report in second.reports} == {WorkerState.DRAINING}
        assert (running.state, waiting.state) == ("started", "scheduled")

        second.decides = True
        second.look()
        await eventually("the resumed worker has taken the waiting task", lambda: waiting.state == "started")
        gate.touch()
        await eventually("both tasks have succeeded", lambda: succeeded(harness) == 2)
