"""Parsing of an activity's ARN, and the error that names the wrong part."""

import pytest

from activity_operator.api.arn import ActivityArn, MalformedArnError, arn_problems, parse_activity_arn
from tests.unit.activity_operator.api.arn_cases import GOOD_ARN, MALFORMED, WELL_FORMED


def test_arn_is_parsed_into_region_account_and_name() -> None:
    assert parse_activity_arn(GOOD_ARN) == ActivityArn("aws", "us-east-1", "123456789012", "resize-images")


@pytest.mark.parametrize("text", WELL_FORMED)
def test_well_formed_arn_survives_the_round_trip(text: str) -> None:
    assert str(parse_activity_arn(text)) == text


@pytest.mark.parametrize(("text", "sentence"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_malformed_arn_is_refused_with_the_part_that_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(MalformedArnError) as refused:
        parse_activity_arn(text)
    assert sentence in str(refused.value)


def test_two_wrong_parts_give_two_messages() -> None:
    assert len(list(arn_problems("arn:aws:sqs:us-east-1::activity:a"))) == 2


def test_text_that_is_not_an_arn_gives_one_message() -> None:
    assert len(list(arn_problems("nonsense"))) == 1


def test_trailing_newline_is_not_part_of_a_name() -> None:
    with pytest.raises(MalformedArnError):
        parse_activity_arn(GOOD_ARN + "\n")
