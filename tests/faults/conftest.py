"""Plays the bounded jobs once for all tests, and prints the table at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import pytest

from tests.faults import bounded, table
from tests.faults.campaign import Played, lanes, play_all, references
from tests.faults.matrix import Job
from tests.faults.runs import Run

_REPORTS: list[str] = []


def tell(played: Iterable[Played]) -> dict[str, Played]:
    """Add runs to the table at the session's end; return them by scenario."""
    found = {one.job.scenario: one for one in played}
    _REPORTS.append("\n".join((table.text(found.values()), *(line for one in found.values() for line in one.run.way))))
    return found


def side_by_side(play: Callable[[str], Awaitable[Played]], names: Iterable[str]) -> dict[str, Played]:
    """Play scenarios at the same time, each on its own control plane; return them by name."""

    async def all_of_them() -> list[Played]:
        return await asyncio.gather(*map(play, names))

    return tell(asyncio.run(all_of_them()))


@dataclass(frozen=True)
class Bounded:
    """The runs without faults, by scenario, and the run of each job."""

    references: dict[str, Run]
    played: dict[Job, Played]


async def _play() -> Bounded:
    async with lanes() as where:
        expected = await references(where, bounded.SCENARIOS)
        played = await play_all(where, bounded.JOBS, expected)
    _REPORTS.append(table.text(played))
    return Bounded(expected, {one.job: one for one in played})


@pytest.fixture(scope="session")
def campaign() -> Bounded:
    """Play all bounded jobs once."""
    return asyncio.run(_play())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    for report in _REPORTS:
        terminalreporter.write_line(report)
