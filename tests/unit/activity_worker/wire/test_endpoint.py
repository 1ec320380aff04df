"""Region and URL are found in the same places as by every AWS SDK."""

from pathlib import Path

import pytest

from activity_worker.wire.endpoint import region_of, resolve
from activity_worker.wire.errors import WireError
from tests.unit.activity_worker.wire.botocore_sessions import new_session


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("REGION", "DEFAULT_REGION", "PROFILE", "ENDPOINT_URL", "ENDPOINT_URL_SFN", "CA_BUNDLE")
    for name in names:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def url(region: str | None = "eu-west-1", endpoint_url: str | None = None) -> str:
    return resolve(new_session(), "stepfunctions", region=region, endpoint_url=endpoint_url).url


def test_url_contains_the_region_and_the_domain_of_its_partition() -> None:
    assert url() == "https://states.eu-west-1.amazonaws.com"
    assert url("cn-north-1") == "https://states.cn-north-1.amazonaws.com.cn"


def test_argument_beats_service_variable_beats_general_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    assert url() == "http://all:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_SFN", "http://sfn:2")
    assert url() == "http://sfn:2"
    assert url(endpoint_url="http://argument:3") == "http://argument:3"


def test_region_comes_from_the_environment_or_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = sa-east-1\n")
    assert url(None) == "https://states.sa-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert url(None) == "https://states.us-west-2.amazonaws.com"


def test_error_of_a_missing_region_names_the_variable() -> None:
    with pytest.raises(WireError, match="AWS_REGION") as caught:
        url(None)

    assert caught.value.code == "NoRegion"


def test_error_of_an_invalid_url_names_it() -> None:
    with pytest.raises(WireError, match="not a url") as caught:
        url(endpoint_url="not a url")

    assert caught.value.code == "InvalidEndpoint"


def test_region_is_read_from_an_arn() -> None:
    assert region_of("arn:aws:states:ap-south-1:123456789012:activity:x") == "ap-south-1"
    assert region_of("resize") == ""


@pytest.mark.parametrize(
    ("region", "fips", "dual_stack", "expected"),
    [
        ("us-east-1", "false", "false", "https://states.us-east-1.amazonaws.com"),
        ("us-east-1", "true", "false", "https://states-fips.us-east-1.amazonaws.com"),
        ("us-east-1", "false", "true", "https://states.us-east-1.api.aws"),
        ("us-gov-west-1", "false", "false", "https://states.us-gov-west-1.amazonaws.com"),
        ("us-gov-west-1", "false", "true", "https://states-fips.us-gov-west-1.api.aws"),
        ("us-gov-east-1", "true", "true", "https://states-fips.us-gov-east-1.api.aws"),
        ("us-iso-east-1", "false", "true", "https://states.us-iso-east-1.api.aws.ic.gov"),
        ("us-isob-east-1", "true", "true", "https://states-fips.us-isob-east-1.api.aws.scloud"),
        ("cn-north-1", "false", "true", "https://states.cn-north-1.api.amazonwebservices.com.cn"),
    ],
)
def test_fips_and_dual_stack_are_those_of_boto3(
    monkeypatch: pytest.MonkeyPatch, region: str, fips: str, dual_stack: str, expected: str
) -> None:
    """As boto3 calls them in each partition, and as each service's rule set of endpoints says."""
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", fips)
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", dual_stack)

    assert url(region) == expected


@pytest.mark.parametrize("region", ["xx-nowhere-1", "useast1", "us_east"])
def test_region_that_is_none_is_named(region: str) -> None:
    with pytest.raises(WireError, match=region) as raised:
        url(region)

    assert raised.value.code in {"UnknownRegion", "InvalidEndpoint"}


def test_new_region_of_a_known_form_and_an_emulators_region_are_accepted() -> None:
    assert url("ap-southeast-99") == "https://states.ap-southeast-99.amazonaws.com"
    assert url("local", "http://127.0.0.1:4566") == "http://127.0.0.1:4566"
