"""What a Redis client accepts from a server: how large an answer may be, and which addresses a server may name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from activity_worker.wire.redis_errors import address_refused, unreachable

#: Bytes of the answers to one exchange: a worker's largest job is 32 MiB (a frame to its handler's process), and the
#: server's answer holds the job beside its lock.
ANSWER_BYTES: Final = 64 * 1024 * 1024

#: Returns why the client must not connect to an address that a server named (HOST:PORT in lower case, an IPv6 host in
#: brackets), or "" if it may.
AddressPolicy = Callable[[str], str]


def no_refusal(address: str) -> str:  # noqa: ARG001 - the signature of a policy
    """Allow every address."""
    return ""


@dataclass(frozen=True, slots=True)
class RedisLimits:
    """Bounds on what a server can make a client do.

    `answer_bytes`: the most bytes of answers to the commands that were sent together, default 64 MiB. `refusal` judges
    the addresses that the client learns from sentinels, from `CLUSTER SLOTS` and from MOVED; default: all are allowed.
    """

    answer_bytes: int = ANSWER_BYTES
    refusal: AddressPolicy = no_refusal

    def address(self, host: object, port: object, source: str) -> tuple[str, int]:
        """Return an address that `source` named, such as "a sentinel".

        Raises `RedisError` with code `NotAnAddress` or `AddressRefused`.
        """
        try:
            number = int(str(port))
        except ValueError:
            number = 0
        if not isinstance(host, str) or not 0 < len(host) <= 253 or not host.isprintable() or not 0 < number < 65536:
            raise unreachable("NotAnAddress", f"{source} names a server by something else than a host and a port")
        named = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
        if words := self.refusal(named.lower()):
            raise address_refused(named, source, words)
        return host, number


ANY_SERVER: Final = RedisLimits()
