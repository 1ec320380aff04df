"""PURE: the table: scenario x part of the faults -> runs, failures, and the time to converge."""

from collections.abc import Iterable

from tests.faults.campaign import Played

HEADS = ("scenario", "faults", "runs", "missed", "wrong", "lost", "interrupted", "duplicates", "retried", "max s")


#: With this many runs of a scenario's part or more, at least half of its faults must have struck.
PROVING_RUNS = 8


def rows(played: Iterable[Played]) -> list[tuple[str, ...]]:
    """Return a row for each scenario and part. A fault is missed when its call did not come in that run."""
    return [(*key, *map(str, _numbers(found))) for key, found in _groups(played).items()]


def unproven(played: Iterable[Played]) -> list[str]:
    """Return the parts whose faults struck too rarely to prove anything, although all of their runs passed."""
    return [
        f"{scenario}, {part}: the fault was missed in {missed} of {len(found)} runs"
        for (scenario, part), found in _groups(played).items()
        if len(found) >= PROVING_RUNS and (missed := sum(not one.run.struck for one in found)) > len(found) / 2
    ]


def _groups(played: Iterable[Played]) -> dict[tuple[str, str], list[Played]]:
    groups: dict[tuple[str, str], list[Played]] = {}
    for one in played:
        groups.setdefault((one.job.scenario, one.job.part), []).append(one)
    return groups


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
