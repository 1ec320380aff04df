"""One suite for every Step Functions service: the fake does what the service does, an emulator what its list says."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.behaviours import BEHAVIOURS, Behaviour
from tests.conformance.emulators import EMULATORS
from tests.conformance.services import Service

DIFFERENCES: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "differences.toml").read_text("utf-8"))


def as_data(seen: object) -> object:
    """Return a value as TOML has it: lists, no tuples."""
    return [as_data(part) for part in seen] if isinstance(seen, (list, tuple)) else seen


@pytest.mark.timeout(180)  # the first use of an emulator installs it
@pytest.mark.parametrize("behaviour", [pytest.param(each, id=each.__name__) for each in BEHAVIOURS])
async def test_a_service_does_what_is_known_of_it(service: Service, behaviour: Behaviour) -> None:
    norm = as_data(BEHAVIOURS[behaviour])
    difference = DIFFERENCES.get(service.name, {}).get(behaviour.__name__)

    seen = as_data(await behaviour(service))

    if difference is None:
        assert seen == norm
    else:
        assert seen != norm, f"{service.name} now does what the service does: take this out of differences.toml"
        assert seen == difference["does"]


def test_every_listed_difference_is_of_a_known_emulator_and_behaviour_and_says_why() -> None:
    names = {behaviour.__name__: as_data(norm) for behaviour, norm in BEHAVIOURS.items()}
    for emulator, listed in DIFFERENCES.items():
        assert emulator in EMULATORS
        for name, difference in listed.items():
            assert name in names
            assert set(difference) == {"does", "why"}
            assert difference["why"]
            assert difference["does"] != names[name]
