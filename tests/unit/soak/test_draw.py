"""Which faults a seed draws."""

import random
from itertools import islice

from tests.faults.plan import ON_EVENTS
from tests.soak.draw import DEATHS, WAYS, What, strikes


def drawn(seed: int, count: int = 400) -> list[object]:
    return list(islice(strikes(random.Random(seed)), count))


def test_a_seed_draws_the_same_faults_again_and_another_seed_others() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_every_kind_of_fault_comes_before_any_is_left_to_chance() -> None:
    assert {one.what for one in islice(strikes(random.Random(3)), len(What))} == set(What)


def test_what_strikes_calls_or_events_says_how_and_what_lasts_how_long() -> None:
    for one in islice(strikes(random.Random(4)), 400):
        assert one.way in WAYS.get(one.what, (None,))
        assert one.gap > 0.0
        assert one.way not in ON_EVENTS or one.what.startswith("events")
        assert one.times == 1 or one.what not in DEATHS
