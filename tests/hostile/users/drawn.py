"""How many pools are generated, and from which seed: the same each time, unless the environment asks for more.

HOSTILE_USERS_EXAMPLES   pools of the batch (default 160); with more, the seed is random
HOSTILE_USERS_SEED       repeats a random seed, which a failing run prints
"""

import os
import random
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

T = TypeVar("T")

DEFAULT_EXAMPLES = 160
EXAMPLES = int(os.environ.get("HOSTILE_USERS_EXAMPLES", str(DEFAULT_EXAMPLES)))
SEED = int(os.environ.get("HOSTILE_USERS_SEED", str(0 if EXAMPLES <= DEFAULT_EXAMPLES else random.randrange(2**32))))


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Return `count` examples. They are not shrunk, because many are played at once."""
    found: list[T] = []

    @seed(SEED)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found[:count]
