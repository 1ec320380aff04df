"""One suite for every Amazon SWF service: the fake behaves like the service, moto as its list says."""

import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activity_worker.testing import SwfFake
from tests.conformance.emulators import MOTO
from tests.conformance.swf_behaviours import SWF_BEHAVIOURS, SwfBehaviour
from tests.conformance.swf_services import SwfService
from tests.conformance.test_stepfunctions import as_data

DIFFERENCES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "swf_differences.toml").read_text("utf-8")
)


@pytest.fixture(params=["fake", MOTO.name])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[SwfService]:
    """Yield each service in turn."""
    if request.param == "fake":
        async with SwfFake() as fake, SwfService("fake", fake.url) as reached:
            yield reached
        return
    async with SwfService(MOTO.name, request.getfixturevalue("moto_url")) as reached:
        yield reached


@pytest.mark.parametrize("behaviour", [pytest.param(each, id=each.__name__) for each in SWF_BEHAVIOURS])
async def test_service_behaves_as_documented(service: SwfService, behaviour: SwfBehaviour) -> None:
    norm = as_data(SWF_BEHAVIOURS[behaviour])
    difference = DIFFERENCES.get(service.name, {}).get(behaviour.__name__)

    seen = as_data(await behaviour(service))

    if difference is None:
        assert seen == norm
    else:
        assert seen != norm, f"{service.name} now behaves like the service: delete this entry of swf_differences.toml"
        assert seen == difference["does"]


def test_listed_differences_have_known_emulator_behaviour_and_reason() -> None:
    names = {behaviour.__name__: as_data(norm) for behaviour, norm in SWF_BEHAVIOURS.items()}
    assert set(DIFFERENCES) == {MOTO.name}
    for name, difference in DIFFERENCES[MOTO.name].items():
        assert name in names
        assert set(difference) == {"does", "why"}
        assert difference["why"]
        assert difference["does"] != names[name]
