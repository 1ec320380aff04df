"""A token that is refused from some call on, and the one that comes after it."""

from functools import partial

import pytest

from tests.eventually import consistently, eventually
from tests.faults import proxy
from tests.faults.proxy import Proxy


class Victim:
    """An operator with two tokens in turn, the one in its file being the first."""

    def __init__(self) -> None:
        self.rotations = 0

    def kill(self) -> None:
        """Not asked for here."""

    def freeze(self) -> None:
        """Not asked for here."""

    def rotate(self) -> None:
        self.rotations += 1

    @property
    def token(self) -> str:
        """What its file has now."""
        return f"Bearer {self.rotations % 2}"

    def is_rotated(self, times: int) -> bool:
        """Whether there were that many rotations."""
        return self.rotations == times


async def test_every_token_has_a_successor_that_is_good_however_often_that_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy, "ROTATED_SECONDS", 0.0)
    victim = Victim()
    road = Proxy("http://nowhere", lambda: victim, rotate=victim.rotate)
    for number in range(1, 4):
        refused = victim.token
        # Several calls that were under way with it: it is rotated once.
        road.refuse_from_now_on(refused)
        road.refuse_from_now_on(refused)
        rotated = partial(victim.is_rotated, number)
        await eventually(f"the token is rotated {number} times", rotated)
        await consistently("two calls with it rotate it once", rotated, seconds=0.01, every_seconds=0.001)
        assert road.refuses(refused)
        assert not road.refuses(victim.token)
