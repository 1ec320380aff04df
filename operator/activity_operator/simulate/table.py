"""PURE: the results as a table of text and as JSON, and the budgets that a result must keep."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from activity_operator.simulate.results import Result
from activity_operator.simulate.traces import Trace

#: The columns: heading, and how a result fills it.
COLUMNS = (
    "policy", "wait p50", "wait p99", "wait max", "worker-s", "/ least", "turns/h", "starts", "most", "interrupted",
    "writes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of all policies on one trace."""

    trace: Trace
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the pool may cost on each trace: p99 of the waits in seconds, and worker-seconds; None is no limit."""

    wait_p99: float | None = None
    worker_seconds: float | None = None


def cells(result: Result) -> tuple[str, ...]:
    """Return a result's row, in the order of `COLUMNS`. A task in brackets had more than 30 s to go."""
    interrupted = f"{result.interrupted} ({result.killed})" if result.killed else str(result.interrupted)
    return (
        result.policy, f"{result.wait_p50:.2f}", f"{result.wait_p99:.2f}", f"{result.wait_max:.2f}",
        f"{result.worker_seconds:.0f}", f"{result.ratio:.2f}", f"{result.reversals_per_hour:.0f}", str(result.starts),
        str(result.most_workers), interrupted, str(result.writes),
    )  # fmt: skip


def as_text(outcome: Outcome) -> str:
    """Return the table of one trace, with a headline."""
    rows = [COLUMNS, *(cells(result) for result in outcome.results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [headline(outcome.trace)]
    for row in rows:
        first, *others = (
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join((first, *others)))
    lines += _notes(outcome)
    return "\n".join(lines) + "\n"


def headline(trace: Trace) -> str:
    """Return one line about a trace."""
    return f"{trace.name}: {len(trace.tasks)} tasks, {trace.work_seconds:.0f} s of work in {trace.seconds / 60:.0f} min"


def _notes(outcome: Outcome) -> Iterator[str]:
    for result in outcome.results:
        if result.unfinished:
            yield f"{result.policy}: {result.unfinished} tasks were not done two hours after the end of the trace"


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Return all results, without their samples, as a JSON document: a list with one entry a trace."""
    document = [
        {
            "trace": outcome.trace.name,
            "seconds": outcome.trace.seconds,
            "results": [{k: v for k, v in asdict(result).items() if k != "samples"} for result in outcome.results],
        }
        for outcome in outcomes
    ]
    return json.dumps(document, indent=2) + "\n"


def broken_budgets(outcomes: Iterable[Outcome], policy: str, budgets: Budgets) -> Iterator[str]:
    """Yield a sentence for each budget that the policy breaks on a trace."""
    for outcome in outcomes:
        for result in outcome.results:
            if result.policy != policy:
                continue
            if budgets.wait_p99 is not None and result.wait_p99 > budgets.wait_p99:
                yield (
                    f"--max-p99 {budgets.wait_p99:g} is broken on {outcome.trace.name}: 99 % of the tasks waited up to "
                    f"{result.wait_p99:.2f} s"
                )
            if budgets.worker_seconds is not None and result.worker_seconds > budgets.worker_seconds:
                yield (
                    f"--max-worker-seconds {budgets.worker_seconds:g} is broken on {outcome.trace.name}: the pool used "
                    f"{result.worker_seconds:.0f} worker-seconds"
                )
