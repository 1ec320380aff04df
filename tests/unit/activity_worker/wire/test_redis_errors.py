"""A server's error replies, classified by what a person or the client should do."""

import pytest

from activity_worker.wire.redis_errors import Trouble, refusal


@pytest.mark.parametrize(
    ("answer", "code", "trouble"),
    [
        ("NOAUTH Authentication required.", "NOAUTH", Trouble.DENIED),
        ("WRONGPASS invalid username-password pair or user is disabled.", "WRONGPASS", Trouble.DENIED),
        ("ERR AUTH <password> called without any password configured", "WRONGPASS", Trouble.DENIED),
        ("NOPERM this user has no permissions to run the 'get' command", "NOPERM", Trouble.DENIED),
        ("DENIED Redis is running in protected mode because ...", "DENIED", Trouble.DENIED),
        ("ERR DB index is out of range", "NoDatabase", Trouble.MISSING),
        ("ERR This instance has cluster support disabled", "NoCluster", Trouble.MISSING),
        ("LOADING Redis is loading the dataset in memory", "LOADING", Trouble.UNREACHABLE),
        ("READONLY You can't write against a read only replica.", "READONLY", Trouble.UNREACHABLE),
        ("UNBLOCKED force unblock from blocking operation", "UNBLOCKED", Trouble.UNREACHABLE),
        ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN", Trouble.UNREACHABLE),
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM", Trouble.REFUSED),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE", Trouble.REFUSED),
        ("CROSSSLOT Keys in request don't hash to the same slot", "CROSSSLOT", Trouble.REFUSED),
        ("wrong words", "ERR", Trouble.REFUSED),
        ("", "ERR", Trouble.REFUSED),
    ],
)
def test_refusal_has_a_code_and_a_class(answer: str, code: str, trouble: Trouble) -> None:
    error = refusal(answer)

    assert (error.code, error.trouble) == (code, trouble)
    assert error.retryable == (trouble in {Trouble.DENIED, Trouble.UNREACHABLE})


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
