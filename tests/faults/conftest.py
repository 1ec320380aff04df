"""The bounded part, played once for all tests: control planes, references, jobs, and the table at the end."""

import asyncio

import pytest

from tests.faults import bounded, table
from tests.faults.campaign import Played, lanes, play_all, references
from tests.faults.matrix import Job

_TOLD: list[str] = []


async def _play() -> dict[Job, Played]:
    async with lanes() as where:
        expected = await references(where, bounded.SCENARIOS)
        played = await play_all(where, bounded.JOBS, expected)
    _TOLD.append(table.text(played))
    return {one.job: one for one in played}


@pytest.fixture(scope="session")
def played() -> dict[Job, Played]:
    """What came of each job."""
    return asyncio.run(_play())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    for told in _TOLD:
        terminalreporter.write_line(told)
