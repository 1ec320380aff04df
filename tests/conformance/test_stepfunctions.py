"""One suite for every Step Functions service: the fake behaves like the service, an emulator as its list says."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.behaviours import BEHAVIOURS, Behaviour
from tests.conformance.emulators import EMULATORS
from tests.conformance.services import Service

DIFFERENCES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "differences.toml").read_text("utf-8"))


def as_data(seen: object) -> object:
    """Return a value in TOML's types: lists instead of tuples."""
    return [as_data(part) for part in seen] if isinstance(seen, (list, tuple)) else seen


@pytest.mark.timeout(180)  # the first use of an emulator installs it
@pytest.mark.parametrize("behaviour", [pytest.param(each, id=each.__name__) for each in BEHAVIOURS])
async def test_service_behaves_as_documented(service: Service, behaviour: Behaviour) -> None:
    norm = as_data(BEHAVIOURS[behaviour])
    difference = DIFFERENCES.get(service.name, {}).get(behaviour.__name__)

    seen = as_data(await behaviour(service))

    if difference is None:
        assert seen == norm
    else:
        assert seen != norm, f"{service.name} now behaves like the service: delete this entry of differences.toml"
        assert seen == difference["does"]


def test_listed_differences_have_known_emulator_behaviour_and_reason() -> None:
    names = {behaviour.__name__: as_data(norm) for behaviour, norm in BEHAVIOURS.items()}
    for emulator, listed in DIFFERENCES.items():
        assert emulator in EMULATORS
        for name, difference in listed.items():
            assert name in names
            assert set(difference) == {"does", "why"}
            assert difference["why"]
            assert difference["does"] != names[name]
