"""PURE: numbers as JavaScript writes them, which the keys of look-up lists contain."""

from decimal import Decimal
from typing import Final

#: Integers up to here are the same in JavaScript; larger ones are rounded to a double.
_MAX_EXACT: Final = 2**53
#: JavaScript writes numbers below 1e21 without an exponent, and above 1e-7.
_MAX_DIGITS: Final = 21
_MAX_ZEROS: Final = 6


def number_text(value: float) -> str:
    """Return a number as `String(value)` of JavaScript does: 1e21 is "1e+21", 1e-7 is "1e-7", -0.0 is "0"."""
    if isinstance(value, int) and abs(value) <= _MAX_EXACT:
        return str(value)
    try:
        number = float(value)
    except OverflowError:
        return "Infinity" if value > 0 else "-Infinity"
    if number == 0:
        return "0"
    if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124 - only NaN differs from itself
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
    return ("-" if number < 0 else "") + _positive(repr(abs(number)))


def _positive(shortest: str) -> str:
    """Return a positive number; Python and JavaScript choose the same shortest digits."""
    number = Decimal(shortest)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    #: Where the point is, counted from the first digit.
    point = number.adjusted() + 1
    if len(digits) <= point <= _MAX_DIGITS:
        return digits + "0" * (point - len(digits))
    if 0 < point <= _MAX_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_MAX_ZEROS < point <= 0:
        return "0." + "0" * -point + digits
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
