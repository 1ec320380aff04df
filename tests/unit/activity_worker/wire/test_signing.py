"""The signer writes the same headers as botocore's."""

from datetime import UTC, datetime
from unittest.mock import patch

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from activity_worker.wire.signing import Keys, Signer

AT = datetime(2026, 3, 4, 23, 59, 58, tzinfo=UTC)
KEYS = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TARGET = "AWSStepFunctions.GetActivityTask"
CONTENT_TYPE = "application/x-amz-json-1.0"


def botocore_headers(url: str, keys: Keys, body: bytes, at: datetime) -> dict[str, str]:
    request = AWSRequest("POST", url, headers={"Content-Type": CONTENT_TYPE, "X-Amz-Target": TARGET}, data=body)
    with patch("botocore.auth.get_current_datetime", return_value=at.replace(tzinfo=None)):
        SigV4Auth(ReadOnlyCredentials(*keys, None), "states", "eu-central-1").add_auth(request)
    return dict(request.headers.items())


def signer(url: str) -> Signer:
    return Signer(service="states", region="eu-central-1", url=url, content_type=CONTENT_TYPE)


@pytest.mark.parametrize(
    "url",
    [
        "https://states.eu-central-1.amazonaws.com",
        "https://states.eu-central-1.amazonaws.com:443/",
        "http://127.0.0.1:4566",
        "http://[::1]:4566/",
        "https://gateway.example.com/step functions/../sfn/",
    ],
)
@pytest.mark.parametrize("token", [None, "FwoGZXIvYXdzEBYaD/+="])
def test_headers_equal_those_of_botocore(url: str, token: str | None) -> None:
    keys = KEYS._replace(token=token)
    body = '{"activityArn":"é"}'.encode()

    ours = signer(url).headers(keys, TARGET, body, AT.timestamp())

    assert botocore_headers(url, keys, body, AT) == {name: value for name, value in ours.items() if name != "Host"}


def test_cached_signing_key_follows_the_date_and_the_credentials() -> None:
    kept = signer("http://127.0.0.1:4566")
    midnight = datetime(2026, 3, 5, 0, 0, 1, tzinfo=UTC)
    for keys, at in ((KEYS, AT), (KEYS, midnight), (KEYS._replace(secret_key="another"), midnight), (KEYS, AT)):
        ours = kept.headers(keys, TARGET, b"{}", at.timestamp())

        assert botocore_headers("http://127.0.0.1:4566", keys, b"{}", at)["Authorization"] == ours["Authorization"]


def test_repr_of_keys_hides_them() -> None:
    assert repr(KEYS) == "Keys(...)"
    assert str(KEYS) == "Keys(...)"
