"""The bounded part, played once for all tests: control planes, references, jobs, and the table at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import pytest

from tests.faults import bounded, table
from tests.faults.campaign import Played, lanes, play_all, references
from tests.faults.matrix import Job
from tests.faults.runs import Run

_TOLD: list[str] = []


def tell(played: Iterable[Played]) -> dict[str, Played]:
    """Have the table printed at the session's end, and what the runs tell beside; return them by scenario."""
    found = {one.job.scenario: one for one in played}
    _TOLD.append("\n".join((table.text(found.values()), *(said for one in found.values() for said in one.run.way))))
    return found


def side_by_side(play: Callable[[str], Awaitable[Played]], names: Iterable[str]) -> dict[str, Played]:
    """Play scenarios side by side, each on a control plane of its own; return them by name."""

    async def all_of_them() -> list[Played]:
        return await asyncio.gather(*map(play, names))

    return tell(asyncio.run(all_of_them()))


@dataclass(frozen=True)
class Bounded:
    """What came of the scenarios without faults, by name, and of each job."""

    references: dict[str, Run]
    played: dict[Job, Played]


async def _play() -> Bounded:
    async with lanes() as where:
        expected = await references(where, bounded.SCENARIOS)
        played = await play_all(where, bounded.JOBS, expected)
    _TOLD.append(table.text(played))
    return Bounded(expected, {one.job: one for one in played})


@pytest.fixture(scope="session")
def campaign() -> Bounded:
    """Everything, played once."""
    return asyncio.run(_play())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    for told in _TOLD:
        terminalreporter.write_line(told)
