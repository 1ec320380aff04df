"""PURE: what a soak prints at its end."""

from collections.abc import Mapping, Sequence

from tests.soak.growth import LIMITS, Growth
from tests.soak.verdict import Row

HEADS = ("fault", "times", "in flight", "lost", "interrupted", "duplicates", "retried", "max s")


def text(rows: Mapping[str, Row]) -> str:
    """Return the table of faults, its columns aligned."""
    lines = [HEADS, *(_cells(fault, row) for fault, row in sorted(rows.items()))]
    total = Row()
    for row in rows.values():
        for name in Row.__slots__:
            kept = max if name == "slowest" else int.__add__
            setattr(total, name, kept(getattr(total, name), getattr(row, name)))
    lines.append(_cells("all", total))
    return _aligned(lines)


def _cells(fault: str, row: Row) -> tuple[str, ...]:
    counts = (row.times, row.in_flight, row.lost, row.interrupted, row.duplicates, row.retried)
    return (str(fault), *map(str, counts), f"{row.slowest:.1f}")


def growth(lines: Sequence[Growth]) -> str:
    """Return a line for each process and measure: its lowest and highest value, and how fast it grew."""
    cells: list[Sequence[str]] = [("process", "measure", "p10", "p95", "a minute", "limit", "seconds", "")]
    for line in lines:
        limit = LIMITS[line.measure]
        numbers = [f"{value / limit.divide:.2f}" for value in (line.low, line.high, line.a_minute, limit.a_minute)]
        verdict = "WRONG" if line.wrong else "flat"
        name = f"{line.measure} {limit.unit}".strip()
        cells.append((f"{line.replica} {line.pid}", name, *numbers, f"{line.seconds:.0f}", verdict))
    return _aligned(cells)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
