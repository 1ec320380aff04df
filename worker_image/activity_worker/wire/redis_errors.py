"""What can go wrong between us and a Redis server, in words that hold no command, key, payload or password."""

from enum import StrEnum
from typing import Final

#: Answers of a server that may be another one in a moment: it loads, follows, or has lost its master.
_PASSING = frozenset(
    {
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MOVED",
        "NOREPLICAS",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",
    }
)
_DENIED = {
    "NOAUTH": "the server asks for a password: give one in the URL, as redis://USER:PASSWORD@HOST",
    "WRONGPASS": "the server refuses the user name or the password of the URL",
    "NOPERM": "the user's ACL refuses the command or its keys: see docs/redis.md for what a worker needs",
    "DENIED": "the server is in protected mode: set a password, or bind it to the address that you use",
}
_KNOWN = {
    "READONLY": "the server is a replica: name its master, or the sentinels or the cluster that know it",
    "LOADING": "the server still loads its data",
    "MASTERDOWN": "the server has lost its master",
    "CLUSTERDOWN": "the cluster does not serve all of its slots",
    "MOVED": "the server is part of a cluster: say so with the scheme redis+cluster:// (or rediss+cluster://)",
    "ASK": "slots of the cluster are moving",
    "NOREPLICAS": "too few replicas follow the server (min-replicas-to-write)",
    "OOM": "the server has used its memory (maxmemory)",
    "MISCONF": "the server cannot save to its disk and refuses writes",
    "WRONGTYPE": "a key of the queue or the job holds another type of value than this dialect writes",
    "CROSSSLOT": "the keys lie in several slots of a cluster: give the flow and its queues one hash tag, as in {shop}",
    "NOSCRIPT": "the server does not know the script",
    "BUSY": "a script keeps the server busy",
    "TRYAGAIN": "slots of the cluster are moving",
    "UNBLOCKED": "the server ended a blocking call, because it became a replica",
    "EXECABORT": "a command of a transaction was refused",
}

#: Codes of our own that callers ask for.
ADDRESS_REFUSED: Final = "AddressRefused"
ANSWER_TOO_LARGE: Final = "AnswerTooLarge"


class RedisErrorKind(StrEnum):
    """What sort of trouble: who should do what about it."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    DENIED = "denied"
    MISSING = "missing"
    REFUSED = "refused"


class RedisError(Exception):
    """A call that did not succeed. `code` is the first word of the server's answer, or ours; `kind` sorts it."""

    def __init__(self, code: str, message: str, kind: RedisErrorKind) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.kind = kind

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later by itself; after silence it may have been carried out."""
        return self.kind not in {RedisErrorKind.REFUSED, RedisErrorKind.MISSING}


def unreachable(code: str, message: str) -> RedisError:
    """Return the error of a call without an answer."""
    return RedisError(code, message, RedisErrorKind.UNREACHABLE)


def refusal(answer: str) -> RedisError:
    """Return the error that a server's error reply stands for, `answer` being the reply without its dash."""
    code, _, words = answer.partition(" ")
    if not code.isupper():
        code, words = "ERR", answer
    if code == "DENIED" or code in _DENIED:
        return RedisError(code, _DENIED[code], RedisErrorKind.DENIED)
    if code == "ERR" and ("AUTH <password> called without" in words or "invalid password" in words):
        return RedisError("WRONGPASS", _DENIED["WRONGPASS"], RedisErrorKind.DENIED)
    if "DB index is out of range" in words:
        return RedisError("NoDatabase", "the server has no database of the URL's number", RedisErrorKind.MISSING)
    if "cluster support disabled" in words:
        text = "the server is in no cluster: name it with redis:// (or rediss://)"
        return RedisError("NoCluster", text, RedisErrorKind.MISSING)
    if code in _PASSING:
        return unreachable(code, _KNOWN[code])
    return RedisError(code, _KNOWN.get(code, _shown(words)), RedisErrorKind.REFUSED)


def address_refused(address: str, source: str, words: str) -> RedisError:
    """Return the error of an address that `source` named and that must not be used; `words` say by which rule."""
    return RedisError(ADDRESS_REFUSED, f"{source} leads to {address}: {words}", RedisErrorKind.REFUSED)


def answer_too_large(limit: int) -> RedisError:
    """Return the error of a call whose answer is larger than `limit` bytes. The call may have been carried out."""
    size = f"{limit / 1048576:g} MiB" if limit >= 1048576 else f"{limit} bytes"
    return RedisError(ANSWER_TOO_LARGE, f"the server's answer is larger than {size}", RedisErrorKind.REFUSED)


def no_sentinel(address: str) -> RedisError:
    """Return the error of a server that was named as a sentinel and knows no sentinel's commands."""
    text = f"{address} is no sentinel: name sentinels (port 26379 most of the time), or the server with redis://"
    return RedisError("NoSentinel", text, RedisErrorKind.MISSING)


def _shown(words: str) -> str:
    """Return a server's words up to where they quote what was sent."""
    for mark in ("'", '"', "`", ", with args"):
        words = words.partition(mark)[0]
    return words.strip()[:200]
