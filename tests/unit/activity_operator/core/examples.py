"""How many examples the tests of random loads try: few and always the same ones, or many and others on request."""

import os

from hypothesis import settings

#: 0 (default, `make unit`): the same examples in every run. N: new random examples in each run, N times as many.
FACTOR = int(os.environ.get("ACTIVITYPOOL_EXAMPLES", "0"))


def examples(few: int) -> settings:
    """Return the settings of a test that tries `few` examples by default. A failure among others can be replayed."""
    return settings(max_examples=few * max(FACTOR, 1), derandomize=not FACTOR, deadline=None, print_blob=bool(FACTOR))
