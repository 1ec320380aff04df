"""Fixtures of empty databases, for the conftest of a suite: SQLite in a file, and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import new_database, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with postgres(durable=False) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return await new_database(str(request.getfixturevalue("server")))
