"""Fixtures for tests of handlers. pytest finds them by itself where this project is installed.

`activity_environment` runs a handler without a worker; `step_functions_fake` is a local Step Functions over HTTP. Both
are for plain test functions and for coroutines.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from activity_worker.testing import ActivityEnvironment
    from activity_worker.testing.fake_in_thread import FakeInThread


@pytest.fixture
def activity_environment() -> "ActivityEnvironment":
    """An environment in which a handler runs as in a worker, against memory."""
    # Imported late: pytest imports this module in every project.
    from activity_worker.testing import ActivityEnvironment  # noqa: PLC0415

    return ActivityEnvironment()


@pytest.fixture
def step_functions_fake() -> "Iterator[FakeInThread]":
    """A Step Functions that listens on `step_functions_fake.url` until the test ends."""
    from activity_worker.testing.fake_in_thread import FakeInThread  # noqa: PLC0415 - as above

    with FakeInThread() as fake:
        yield fake
