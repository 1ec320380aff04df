"""The story of a run: what happened when, with what happens to many workers at once told once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

#: Happenings of one kind within this many seconds of the first are one.
TOGETHER_SECONDS = 1.0
#: How many are remembered.
REMEMBERED = 200
_SIZES = re.compile(r"^(\d+) -> (\d+) workers: (.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened at `at` (seconds): to the workers `who` what `one` says of one and `many` of several.

    Without `who` it is told as `one` stands.
    """

    at: float
    one: str
    many: str = ""
    who: tuple[str, ...] = ()
    bad: bool = False

    @property
    def text(self) -> str:
        """The sentence."""
        if not self.who:
            return self.one
        if len(self.who) == 1:
            return f"worker {self.who[0]} {self.one}"
        return f"{len(self.who)} workers {self.many}"


def remember(story: Sequence[Happening], new: Happening) -> tuple[Happening, ...]:
    """Return the story with the new one: joined to an equal one of the same second, else at the end."""
    for place in range(len(story) - 1, -1, -1):
        old = story[place]
        if new.at - old.at >= TOGETHER_SECONDS:
            break
        joined = _join(old, new)
        if joined is not None:
            return (*story[:place], joined, *story[place + 1 :])
    return (*story, new)[-REMEMBERED:]


def settled(story: Sequence[Happening], now: float) -> tuple[Happening, ...]:
    """Return those that nothing will be joined to any more, oldest first."""
    return tuple(happening for happening in story if now - happening.at >= TOGETHER_SECONDS)


def _join(old: Happening, new: Happening) -> Happening | None:
    if old.who and new.who and old.one == new.one:
        return old if new.who[0] in old.who else replace(old, who=old.who + new.who)
    before, after = _SIZES.match(old.one), _SIZES.match(new.one)
    if before and after and before[2] == after[1]:
        return replace(old, one=f"{before[1]} -> {after[2]} workers: {after[3]}")
    return None
