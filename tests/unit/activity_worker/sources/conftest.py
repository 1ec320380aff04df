"""Run the tests of this folder in virtual time."""

from tests.unit.activity_operator.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualLoop]]:
    """Run every asynchronous test here on a loop in virtual time."""
    return {"virtual": VirtualLoop}
