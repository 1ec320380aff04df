"""PURE: spans of time as people write them."""

import re
from typing import Any, Final

#: Seconds of each unit. A month is 30 days and a year 365: delays need no calendar.
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "M": 2_592_000, "y": 31_536_000}
_WHOLE: Final = re.compile(r"(?:\d+[smhdwMy])+")
_PART: Final = re.compile(r"(\d+)([smhdwMy])")


def parse_seconds(text: Any) -> float:
    """Return a span in seconds. Raises ValueError naming what is wrong with it."""
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < float("inf"):
        return float(text)
    if isinstance(text, str) and _WHOLE.fullmatch(text):
        return float(sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    raise ValueError(f"{text!r} is not a span of time such as '5s', '1h30m', '2d' or a number of seconds")
