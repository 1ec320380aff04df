"""When the demo is over, whether it did what it promises, and its last line."""

from dataclasses import dataclass

from tests.demo import plan, screen
from tests.demo.demo_state import DemoState

#: Seconds after which it gives up: the pool not Ready at first, or not Ready in a row later.
READY_SECONDS = 60.0
NOT_READY_SECONDS = 60.0
#: Seconds for all executions, from the first; a run on two busy cores takes 40.
EXECUTIONS_SECONDS = 240.0
#: Seconds from the last execution to zero: the windows, 60 s for open polls, and pods that leave.
ZERO_SECONDS = 180.0
#: Seconds for which the emulator may not answer.
SILENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured, in the end.

    `interrupted` is None when the service no longer tells. `lost` counts tasks that were handed out and failed or
    timed out without a worker being to blame; `given_up` says why the demo did not wait longer, "" when the pool came
    back to zero by itself.
    """

    executions: int
    succeeded: int
    workers_before: int
    most_workers: int
    workers_left: int
    first_replica_seconds: float | None
    interrupted: int | None
    lost: int
    given_up: str = ""


def impatience(demo_state: DemoState, now: float, opened: float) -> str:
    """Return why it is pointless to wait any longer at `now`, "" while it is not; `opened`: when the pool was made."""
    said, silent_for = demo_state.ready, 0.0 if demo_state.problem_since is None else now - demo_state.problem_since
    if silent_for > SILENCE_SECONDS:
        return f"for {silent_for:.0f} s, {demo_state.problem}"
    if demo_state.statuses and sum(demo_state.statuses.values()) < plan.EXECUTIONS <= demo_state.started:
        gone = demo_state.started - sum(demo_state.statuses.values())
        return f"the emulator no longer knows {gone} of {demo_state.started} executions (has it been restarted?)"
    if demo_state.began is None:
        return f"no pool after {READY_SECONDS:.0f} s: {screen.pool(demo_state)}" if now - opened > READY_SECONDS else ""
    if said.get("status") == "False" and now - demo_state.ready_since > NOT_READY_SECONDS:
        return f"the pool has not been Ready for {NOT_READY_SECONDS:.0f} s: {screen.pool(demo_state)}"
    if demo_state.ended_at is None and now - demo_state.began > EXECUTIONS_SECONDS:
        return f"not all executions have ended after {EXECUTIONS_SECONDS:.0f} s: {screen.executions(demo_state)}"
    if demo_state.ended_at is not None and now - demo_state.ended_at > ZERO_SECONDS:
        return f"{screen.workers(demo_state)} left, {ZERO_SECONDS:.0f} s after the last execution"
    return ""


def over(demo_state: DemoState) -> bool:
    """Whether all executions have ended and the pool is at zero again."""
    return demo_state.all_ended and demo_state.at_zero


def failures(outcome: Outcome) -> list[str]:
    """Return what is not as promised, a sentence each; nothing when the demo succeeded."""
    found = [outcome.given_up] if outcome.given_up else []
    if outcome.executions != plan.EXECUTIONS:
        found.append(f"the service knows {outcome.executions} executions instead of {plan.EXECUTIONS}")
    if outcome.succeeded != plan.EXECUTIONS:
        found.append(f"{plan.EXECUTIONS - outcome.succeeded} of {plan.EXECUTIONS} executions did not succeed")
    if outcome.workers_before:
        found.append(f"the pool had {outcome.workers_before} workers before there was work")
    if outcome.most_workers != plan.MAX_WORKERS:
        found.append(f"{outcome.most_workers} workers were ready at once instead of {plan.MAX_WORKERS}")
    if outcome.workers_left:
        found.append(f"the pool did not come back to zero: {outcome.workers_left} workers are left")
    if outcome.first_replica_seconds is None:
        found.append("no replica was written")
    if outcome.interrupted is None:
        found.append("whether tasks were interrupted is not known: the emulator does not tell the histories")
    elif outcome.interrupted:
        found.append(f"{outcome.interrupted} tasks were interrupted: a worker began them and did not conclude them")
    if outcome.lost:
        found.append(f"{outcome.lost} tasks were lost or failed, and handed out again or not")
    return found


def last_line(outcome: Outcome) -> str:
    """Return the demo's last line, with what was measured."""
    interrupted = "?" if outcome.interrupted is None else outcome.interrupted
    return (
        f"demo: {outcome.succeeded}/{plan.EXECUTIONS} executions succeeded, workers {outcome.workers_before} -> "
        f"{outcome.most_workers} -> {outcome.workers_left}, first replica after "
        f"{_seconds(outcome.first_replica_seconds)} s, {interrupted} tasks interrupted"
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if round(value, 2) < 1 else f"{value:.1f}"
