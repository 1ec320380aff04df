"""A server's error replies, classified by what a person or the client should do."""

import pytest

from activity_worker.wire.redis_errors import RedisErrorKind, refusal


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        ("NOAUTH Authentication required.", "NOAUTH", RedisErrorKind.DENIED),
        ("WRONGPASS invalid username-password pair or user is disabled.", "WRONGPASS", RedisErrorKind.DENIED),
        ("ERR AUTH <password> called without any password configured", "WRONGPASS", RedisErrorKind.DENIED),
        ("NOPERM this user has no permissions to run the 'get' command", "NOPERM", RedisErrorKind.DENIED),
        ("DENIED Redis is running in protected mode because ...", "DENIED", RedisErrorKind.DENIED),
        ("ERR DB index is out of range", "NoDatabase", RedisErrorKind.MISSING),
        ("ERR This instance has cluster support disabled", "NoCluster", RedisErrorKind.MISSING),
        ("LOADING Redis is loading the dataset in memory", "LOADING", RedisErrorKind.UNREACHABLE),
        ("READONLY You can't write against a read only replica.", "READONLY", RedisErrorKind.UNREACHABLE),
        ("UNBLOCKED force unblock from blocking operation", "UNBLOCKED", RedisErrorKind.UNREACHABLE),
        ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN", RedisErrorKind.UNREACHABLE),
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM", RedisErrorKind.REFUSED),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE", RedisErrorKind.REFUSED),
        ("CROSSSLOT Keys in request don't hash to the same slot", "CROSSSLOT", RedisErrorKind.REFUSED),
        ("wrong words", "ERR", RedisErrorKind.REFUSED),
        ("", "ERR", RedisErrorKind.REFUSED),
    ],
)
def test_refusal_has_a_code_and_a_class(answer: str, code: str, kind: RedisErrorKind) -> None:
    error = refusal(answer)

    assert (error.code, error.kind) == (code, kind)
    assert error.retryable == (kind in {RedisErrorKind.DENIED, RedisErrorKind.UNREACHABLE})


@pytest.mark.parametrize(
    "answer",
    [
        "ERR unknown command 'HSETT', with args beginning with: 'job:shop:j1' 'a payload' ",
        'ERR Protocol error: "a payload"',
        "NOPERM this user has no permissions to access the 'a payload' key",
        "WRONGTYPE a payload",
    ],
)
def test_error_does_not_repeat_the_payload(answer: str) -> None:
    assert "payload" not in str(refusal(answer))
