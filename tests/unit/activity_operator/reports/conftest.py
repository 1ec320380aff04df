"""These tests run in virtual time."""

from tests.unit.activity_operator.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualLoop]]:
    """Run every asynchronous test here on a loop whose clock jumps."""
    return {"virtual": VirtualLoop}
