"""How many pools are made up, and which: the same ones every time, unless the environment asks for more.

HOSTILE_USERS_EXAMPLES   pools of the batch (default 160); beyond the default they are new ones each time
HOSTILE_USERS_SEED       makes those the same again; a failing run says which seed it had
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
    """Return so many examples; nothing is shrunk, because many are tried at once."""
    found: list[T] = []

    @seed(SEED)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found[:count]
