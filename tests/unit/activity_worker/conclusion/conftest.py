"""These tests run in virtual time, on the VirtualLoop of those of `runtime`."""

from tests.unit.activity_worker.runtime.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
