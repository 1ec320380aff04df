"""A paused pool's worker, as a real process, over a change of leader."""

import json
from contextlib import AsyncExitStack

from activity_operator.core.observation import WorkerFacts
from activity_worker.contract import Directive, WorkerState
from tests.eventually import eventually
from tests.integration.reports.stage import KEY, Operator, Stage, succeeded


def facts(operator: Operator) -> WorkerFacts | None:
    """Return the facts of the one worker's last report to this operator."""
    return next(iter(operator.registry.workers(*KEY)), None)


async def test_draining_worker_polls_no_more_under_a_new_leader(stage: Stage) -> None:
    gate = stage.folder / "gate"
    text = json.dumps({"gate": str(gate)})
    async with AsyncExitStack() as stack:
        async with stage.operator() as first:
            (running,) = stage.fake.schedule(stage.arn, text)
            await stack.enter_async_context(stage.worker("waits_at_the_gate"))
            await eventually("a task runs", lambda: (found := facts(first)) is not None and found.busy == 1)
            first.directive = Directive.DRAIN
            first.look()
            await eventually(
                "the worker drains without an open poll",
                lambda: (
                    (found := facts(first)) is not None and found.state is WorkerState.DRAINING and not found.open_polls
                ),
            )
        second = stage.make_operator(decides=False)
        await stack.enter_async_context(stage.run(second))
        (waiting,) = stage.fake.schedule(stage.arn, text)
        await eventually("the worker has reported five times to the new leader", lambda: len(second.reports) >= 5)
        assert {report.state for report in second.reports} == {WorkerState.DRAINING}
        assert (running.state, waiting.state) == ("started", "scheduled")

        second.decides = True
        second.look()
        await eventually("the resumed worker has taken the waiting task", lambda: waiting.state == "started")
        gate.touch()
        await eventually("both tasks have succeeded", lambda: succeeded(stage) == 2)
