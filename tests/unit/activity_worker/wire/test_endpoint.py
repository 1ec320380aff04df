"""Region and URL are found where every AWS SDK finds them."""

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


def test_a_region_has_its_own_address_in_its_own_partition() -> None:
    assert url() == "https://states.eu-west-1.amazonaws.com"
    assert url("cn-north-1") == "https://states.cn-north-1.amazonaws.com.cn"


def test_what_the_caller_says_beats_the_environment_and_the_service_beats_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    assert url() == "http://all:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_SFN", "http://sfn:2")
    assert url() == "http://sfn:2"
    assert url(endpoint_url="http://said:3") == "http://said:3"


def test_the_region_comes_from_the_environment_or_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = sa-east-1\n")
    assert url(None) == "https://states.sa-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert url(None) == "https://states.us-west-2.amazonaws.com"


def test_no_region_says_what_to_set() -> None:
    with pytest.raises(WireError, match="AWS_REGION") as caught:
        url(None)

    assert caught.value.code == "NoRegion"


def test_an_unusable_url_is_named() -> None:
    with pytest.raises(WireError, match="not a url") as caught:
        url(endpoint_url="not a url")

    assert caught.value.code == "InvalidEndpoint"


def test_an_arn_tells_its_region() -> None:
    assert region_of("arn:aws:states:ap-south-1:123456789012:activity:x") == "ap-south-1"
    assert region_of("resize") == ""
