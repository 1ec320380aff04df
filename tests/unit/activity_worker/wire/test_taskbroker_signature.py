"""Signatures of calls: one secret signs, several verify."""

import pytest

from activity_worker.wire.taskbroker_signature import SecretsError, is_signed, read_secrets, sign

PATH = "/sentry_protos.taskbroker.v1.ConsumerService/GetTask"


def test_signature_is_the_hmac_of_path_colon_body() -> None:
    # printf '/a/B:body' | openssl dgst -sha256 -hmac secret
    assert sign("secret", "/a/B", b"body") == "49caca789ce801cf53dd024a53e8b45ef2de95acb4c7f5aee4593be96f56ded9"


def test_any_of_the_secrets_verifies_and_another_does_not() -> None:
    signature = sign("old", PATH, b"body")
    assert is_signed(["new", "old"], PATH, b"body", signature)
    assert not is_signed(["new"], PATH, b"body", signature)
    assert not is_signed([], PATH, b"body", signature)


@pytest.mark.parametrize(
    ("path", "body", "signature"),
    [
        (PATH + "s", b"body", None),
        (PATH, b"other", None),
        (PATH, b"body", ""),
        (PATH, b"body", "ümlaut"),
    ],
)
def test_changed_call_is_not_signed(path: str, body: bytes, signature: str | None) -> None:
    given = sign("secret", PATH, b"body") if signature is None else signature
    assert not is_signed(["secret"], path, body, given)


def test_secrets_are_a_list_in_json() -> None:
    assert read_secrets('["new", "old"]') == ("new", "old")
    assert read_secrets("  ") == ()


@pytest.mark.parametrize("text", ["hidden", '"hidden"', "[]", '["hidden", ""]', '["hidden", 1]', '{"hidden": 1}'])
def test_wrong_secrets_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SecretsError, match="JSON list") as raised:
        read_secrets(text)
    assert "hidden" not in str(raised.value)
