"""PURE: the table of a run, and the failures below it."""

from collections.abc import Sequence

from tests.suites.jobs import Result

_HEAD = ("suite", "result", "tests", "skipped", "failed", "seconds", "CPU s", "waits")


def text(results: Sequence[Result]) -> str:
    """Return a Markdown table with one row per job, aligned for a terminal."""
    rows = [_HEAD, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    rule = [("-" * width if column < 2 else "-" * (width - 1) + ":") for column, width in enumerate(widths)]
    aligned = [
        [cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(pairs)]
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (aligned[0], rule, *aligned[1:]))


def totals(results: Sequence[Result], seconds: float, machine_seconds: float | None, cores: int) -> str:
    """Return the sentence below the table.

    `machine_seconds` is the processor time of all processes of the machine meanwhile, the cluster's daemons included;
    None where it is not known.
    """
    cpu = sum(result.cpu_seconds for result in results)
    sentence = f"{seconds:.0f} s in all; the jobs took {cpu:.0f} s of CPU without the cluster's daemons"
    if machine_seconds is None:
        return sentence
    share = machine_seconds / (seconds * cores) if seconds else 0.0
    return f"{sentence}, the whole machine {machine_seconds:.0f} s ({share:.0%} of {cores} cores)"


def failures(results: Sequence[Result]) -> str:
    """Return each failed test with the end of its text, and each failed job without a failed test; "" for none."""
    found = [
        f"{result.job.name}: {failure.name}\n{failure.text}"
        for result in results
        for failure in result.outcome.failures
    ]
    found += [
        f"{result.job.name}: exit code {result.code} without a failed test; read its output file"
        for result in results
        if result.code and not result.outcome.failures
    ]
    return "\n\n".join(found)


def _row(result: Result) -> tuple[str, ...]:
    counted = result.outcome
    counts = (str(counted.tests), str(counted.skipped), str(len(counted.failures))) if counted.tests else ("", "", "")
    return (
        result.job.name,
        "ok" if result.code == 0 else f"FAILED ({result.code})",
        *counts,
        f"{result.seconds:.0f}",
        f"{result.cpu_seconds:.0f}",
        f"{result.waiting:.0%}",
    )
