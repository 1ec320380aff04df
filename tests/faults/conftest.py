"""Plays the bounded jobs once for all tests, and prints the table at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

from tests.faults import bounded, table
from tests.faults.campaign import Played, lanes, play_all, references
from tests.faults.matrix import Job
from tests.faults.runs import Run

T = TypeVar("T")

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


def selected(items: Iterable[pytest.Item], fixture: str, parameter: str, everything: Sequence[T]) -> tuple[T, ...]:
    """Return what the session's tests with this fixture need, in the order of `everything`.

    A test with the parameter needs its value, a test without it needs `everything`. So a second run of a failed test
    plays that test's runs only.
    """
    users = [item for item in items if isinstance(item, pytest.Function) and fixture in item.fixturenames]
    chosen = [item.callspec.params for item in users if hasattr(item, "callspec")]
    if len(chosen) < len(users) or not all(parameter in parameters for parameters in chosen):
        return tuple(everything)
    values = [parameters[parameter] for parameters in chosen]
    return tuple(one for one in everything if one in values)


async def _play(jobs: Sequence[Job]) -> Bounded:
    names = {job.scenario for job in jobs}
    async with lanes() as where:
        expected = await references(where, tuple(name for name in bounded.SCENARIOS if name in names))
        played = await play_all(where, jobs, expected)
    _REPORTS.append(table.text(played))
    return Bounded(expected, {one.job: one for one in played})


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> Bounded:
    """Play the bounded jobs of the session's tests once."""
    return asyncio.run(_play(selected(request.session.items, "campaign", "job", bounded.JOBS)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    for report in _REPORTS:
        terminalreporter.write_line(report)
