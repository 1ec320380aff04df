"""Numbers in the keys of look-up lists are written as JavaScript writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_worker.flows.definition import lookup_key
from activity_worker.flows.javascript import number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (62, "62"),
        (-7, "-7"),
        (1.0, "1"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (-1e-7, "-1e-7"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (123456789012345680000.0, "123456789012345680000"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (2**63, "9223372036854776000"),
        (-(10**400), "-Infinity"),
        (10**22, "1e+22"),
        (5e-324, "5e-324"),
        (123.456, "123.456"),
    ],
)
def test_number_is_written_as_javascript_writes_it(value: float, text: str) -> None:
    assert number_text(value) == text
    assert lookup_key("shop", "customer", value) == f"job:shop:customer:{text}"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_text_of_a_number_is_the_same_number(value: float) -> None:
    assert float(number_text(value)) == value
