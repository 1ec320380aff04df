"""PURE: scenario x part of the faults -> runs, what went wrong, and how long it took to converge."""

from collections.abc import Iterable

from tests.faults.campaign import Played

HEADS = ("scenario", "faults", "runs", "missed", "wrong", "lost", "interrupted", "duplicates", "retried", "max s")


def rows(played: Iterable[Played]) -> list[tuple[str, ...]]:
    """Return a row for each scenario and part. A fault is missed when its call did not come in that run."""
    groups: dict[tuple[str, str], list[Played]] = {}
    for one in played:
        groups.setdefault((one.job.scenario, one.job.part), []).append(one)
    return [(*key, *map(str, _numbers(found))) for key, found in groups.items()]


def _numbers(found: list[Played]) -> tuple[object, ...]:
    runs = [one.run for one in found]
    return (
        len(runs),
        sum(not run.struck for run in runs),
        sum(bool(run.wrong) for run in runs),
        sum(run.harm.lost for run in runs),
        sum(run.harm.interrupted for run in runs),
        sum(run.harm.duplicates for run in runs),
        sum(run.harm.retried for run in runs),
        f"{max(run.seconds for run in runs):.1f}",
    )


def text(played: Iterable[Played]) -> str:
    """Return the table, its columns aligned."""
    lines = [HEADS, *rows(played)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
