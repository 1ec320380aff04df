"""PURE: rows of measurements, and the table they become, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

HEADINGS = ("what", "ours", "peer", "ratio or limit", "", "how it was measured")
# The columns on a terminal; the sentence on how a row was measured stands below the row.
_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what was measured, ours, a peer's in the same run, the ratio or limit, and how.

    `met` is None where there is no goal; a missed goal is printed and raises no error.
    """

    what: str
    ours: str
    peer: str = ""
    against: str = ""
    met: bool | None = None
    how: str = ""

    @property
    def verdict(self) -> str:
        """`met` as a word."""
        return "" if self.met is None else ("met" if self.met else "missed")

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells under `HEADINGS`."""
        return (self.what, self.ours, self.peer, self.against, self.verdict, self.how)


def ratio(
    what: str, ours: float, peer_name: str, peer: float, *, unit: str, goal: float | None = None, how: str = ""
) -> Row:
    """Return the row of a rate, the higher the better, beside a peer's; `goal` is the least ratio that meets it."""
    times = ours / peer if peer > 0 else float("inf")
    against = f"{times:.2f}x" + ("" if goal is None else f" (goal >= {goal:g}x)")
    met = None if goal is None else times >= goal
    return Row(what, number(ours, unit), f"{peer_name}: {number(peer, unit)}", against, met, how)


def at_most(what: str, ours: float, limit: float, *, unit: str, peer: str = "", how: str = "") -> Row:
    """Return the row of a number that should not exceed `limit`."""
    return Row(what, number(ours, unit), peer, f"limit <= {number(limit, unit)}", ours <= limit, how)


def number(value: float, unit: str) -> str:
    """Return a number with its unit, with three significant figures or all digits before the point."""
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


@dataclass(slots=True)
class Table:
    """All rows of one run, by benchmark, and the line on the machine."""

    machine: str
    sections: list[tuple[str, Sequence[Row]]] = field(default_factory=list)

    def add(self, title: str, rows: Sequence[Row]) -> None:
        """Add the rows of one benchmark."""
        self.sections.append((title, rows))

    def text(self) -> str:
        """Return the table for a terminal."""
        rows = [row for _, rows in self.sections for row in rows]
        widths = _widths([HEADINGS[:_COLUMNS], *(row.cells[:_COLUMNS] for row in rows)])
        lines = [_line(HEADINGS[:_COLUMNS], widths)]
        for title, measured in self.sections:
            lines += ["", f"== {title}"]
            for row in measured:
                lines.append(_line(row.cells[:_COLUMNS], widths))
                if row.how:
                    lines.append(f"    {row.how}")
        return "\n".join([*lines, "", self.machine])

    def markdown(self) -> str:
        """Return the table as Markdown, with the machine's line below it."""
        lines = [_markdown_row(HEADINGS), _markdown_row(["---"] * len(HEADINGS))]
        lines += [_markdown_row(row.cells) for _, rows in self.sections for row in rows]
        return "\n".join([*lines, "", self.machine, ""])


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
