"""Region and URL are found in the same places as by every AWS SDK."""

from pathlib import Path

import botocore.session
import pytest

from activity_worker.wire.endpoint import region_of, resolve
from activity_worker.wire.errors import WireError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("REGION", "DEFAULT_REGION", "PROFILE", "ENDPOINT_URL", "ENDPOINT_URL_SFN", "CA_BUNDLE")
    for name in names:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def url(region: str | None = "eu-west-1", endpoint_url: str | None = None) -> str:
    return resolve(botocore.session.Session(), "stepfunctions", region=region, endpoint_url=endpoint_url).url


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
