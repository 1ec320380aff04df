"""The services under test: the fake in this process, each emulator once a session."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from activity_worker.testing import StepFunctionsFake
from tests.conformance.emulators import EMULATORS, MOTO, NoPythonError, running
from tests.conformance.services import Service


@pytest.fixture(scope="session")
def emulator_urls() -> Iterator[dict[str, str]]:
    """Start each emulator at its first use; all are killed at the end of the session."""
    with contextlib.ExitStack() as stack:

        class Urls(dict[str, str]):
            def __missing__(self, name: str) -> str:
                url = self[name] = stack.enter_context(running(EMULATORS[name]))
                return url

        yield Urls()


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Start moto at its first use."""
    with running(MOTO) as url:
        yield url


@pytest.fixture(params=["fake", *EMULATORS])
async def service(request: pytest.FixtureRequest, emulator_urls: dict[str, str]) -> AsyncIterator[Service]:
    """Yield each service in turn."""
    name = str(request.param)
    if name == "fake":
        async with StepFunctionsFake() as fake, Service(name, fake.url) as reached:
            yield reached
        return
    try:
        url = emulator_urls[name]
    except NoPythonError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} {reason}; it is judged as a pod of the local cluster instead")
    async with Service(name, url) as reached:
        yield reached
