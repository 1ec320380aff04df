"""The usual endpoint and keys without botocore: what botocore says itself, and None where only it can say."""

import json
from collections.abc import Mapping
from pathlib import Path

import botocore
import pytest

from activity_worker.wire.endpoint import resolve
from activity_worker.wire.plain_environment import AwsEndpoint, environment_keys, plain_endpoint
from activity_worker.wire.signing import Keys
from tests.unit.activity_worker.wire.botocore_sessions import new_session

SERVICES = ("stepfunctions", "swf", "sts")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def find(environment: Mapping[str, str] | None = None, url: str | None = None) -> AwsEndpoint | None:
    return plain_endpoint("stepfunctions", region="eu-west-1", endpoint_url=url, environment=environment or {})


@pytest.mark.parametrize("service", SERVICES)
def test_endpoint_is_that_of_botocore_in_each_region(service: str) -> None:
    path = Path(botocore.__file__).parent / "data" / "partitions.json"
    partitions = json.loads(path.read_bytes())["partitions"]
    regions = [name for partition in partitions for name in partition["regions"]]
    session = new_session()
    known = 0
    for region in regions:
        found = plain_endpoint(service, region=region, endpoint_url=None, environment={})
        if found is not None:
            known += 1
            assert found == resolve(session, service, region=region, endpoint_url=None)
    assert known > 20


@pytest.mark.parametrize("url", ["http://127.0.0.1:4566", "https://gateway.example/aws/"])
def test_url_that_is_given_is_that_of_botocore(url: str) -> None:
    session = new_session()

    assert find(url=url) == resolve(session, "stepfunctions", region="eu-west-1", endpoint_url=url)


def test_region_comes_from_the_variables() -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        found = plain_endpoint("swf", region=None, endpoint_url=None, environment={name: "us-west-2"})
        assert found is not None
        assert (found.url, found.signing_name) == ("https://swf.us-west-2.amazonaws.com", "swf")


def test_bundle_of_the_environment_is_trusted() -> None:
    found = find({"AWS_CA_BUNDLE": "/etc/bundle.pem"})

    assert found is not None
    assert found.ca_bundle == "/etc/bundle.pem"


@pytest.mark.parametrize(
    "environment",
    [
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        {"AWS_ENDPOINT_URL": "http://one"},
        {"AWS_ENDPOINT_URL_SFN": "http://one"},
        {"AWS_PROFILE": "one"},
    ],
    ids=lambda environment: next(iter(environment)),
)
def test_variables_that_change_an_endpoint_are_left_to_botocore(environment: Mapping[str, str]) -> None:
    assert find(environment) is None


def test_url_of_another_service_changes_nothing() -> None:
    assert find({"AWS_ENDPOINT_URL_STS": "http://one"}) == find()


@pytest.mark.parametrize("name", [".aws/config", ".aws/credentials", ".boto"])
def test_files_that_can_change_an_endpoint_are_left_to_botocore(name: str, home: Path) -> None:
    assert find() is not None
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).touch()

    assert find() is None


@pytest.mark.parametrize("region", [None, "", "mars-north-1", "cn-north-1", "us-gov-west-1", "aws-global"])
def test_other_regions_are_left_to_botocore(region: str | None) -> None:
    assert plain_endpoint("swf", region=region, endpoint_url=None, environment={}) is None


@pytest.mark.parametrize("url", ["ftp://a", "no url", "https://states.eu-west-1.amazonaws.com"])
def test_urls_that_need_a_check_are_left_to_botocore(url: str) -> None:
    assert find(url=url) is None


def test_keys_of_the_environment_are_those_of_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "access"), ("SECRET_ACCESS_KEY", "word"), ("SESSION_TOKEN", "token")):
        monkeypatch.setenv(f"AWS_{name}", value)
        found = environment_keys()
        if name == "ACCESS_KEY_ID":
            assert found is None
            continue
        assert found is not None
        theirs = new_session().get_credentials().get_frozen_credentials()
        assert found.get_frozen_credentials() == Keys(theirs.access_key, theirs.secret_key, theirs.token)


def test_keys_that_end_are_left_to_botocore() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "word"}

    assert environment_keys(keys) is not None
    assert environment_keys(keys | {"AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z"}) is None
