"""PURE: the URL of a Redis server, of sentinels, or of a cluster.

    redis://USER:PASSWORD@HOST:6379/0
    redis+sentinel://USER:PASSWORD@HOST:26379,HOST:26379/MASTER/0
    redis+cluster://USER:PASSWORD@HOST:6379,HOST:6379

`rediss`, `rediss+sentinel` and `rediss+cluster` speak TLS. Errors show no part of the URL that may be secret.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from activity_worker.wire.host_names import read_hosts

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379
#: How long a connection may take to be made, and a call to be answered, in seconds; blocking calls have that on top.
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0

_EXAMPLES = "redis://HOST:6379/0, redis+sentinel://HOST:26379/MASTER/0 or redis+cluster://HOST:6379, rediss for TLS"


class RedisUrlError(ValueError):
    """The URL cannot be used; says which part of it and what to write instead, never a password."""


class TopologyKind(StrEnum):
    """What the URL's hosts are."""

    SERVER = "redis"
    SENTINEL = "redis+sentinel"
    CLUSTER = "redis+cluster"


@dataclass(frozen=True, slots=True)
class RedisTls:
    """How TLS is spoken: the CA bundle, as a file or as PEM text (the system's without one), and files of a client
    certificate.
    """

    ca_certs: str | None = None
    ca_data: str | None = field(default=None, repr=False)
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: str = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL. It can be hashed, and passwords are in no repr. `tls` is None without TLS."""

    kind: TopologyKind
    hosts: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    master: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    tls: RedisTls | None = None
    client_name: str | None = None
    connect_seconds: float = CONNECT_SECONDS
    answer_seconds: float = ANSWER_SECONDS

    @property
    def shown(self) -> str:
        """The URL without user names, passwords and options, for people."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        scheme = self.kind.value.replace("redis", "rediss" if self.tls else "redis", 1)
        path = f"/{self.master}" if self.master else ""
        return f"{scheme}://{hosts}{path}/{self.database}"


def parse_redis_url(text: str) -> RedisUrl:
    """Return the parsed URL; raises `RedisUrlError`."""
    scheme, separator, _ = text.partition("://")
    secure = scheme.startswith("rediss")
    try:
        kind = TopologyKind(scheme.replace("rediss", "redis", 1))
        parts = urlsplit(text)
    except ValueError:
        kind = None
    if not separator or kind is None:
        shown = scheme if separator and re.fullmatch(r"[a-z+.-]{1,30}", scheme) else "?"
        raise RedisUrlError(f"the Redis URL's scheme {shown!r}: expected {_EXAMPLES}")
    who, _, where = parts.netloc.rpartition("@")
    username, _, password = who.partition(":")
    url = RedisUrl(
        kind=kind,
        hosts=_hosts(kind, where),
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=RedisTls() if secure else None,
    )
    return _with_options(_with_path(url, unquote(parts.path).strip("/")), parts.query)


def _hosts(kind: TopologyKind, where: str) -> tuple[tuple[str, int], ...]:
    default = DEFAULT_SENTINEL_PORT if kind is TopologyKind.SENTINEL else DEFAULT_PORT
    found = read_hosts(where, default)
    if found is None:
        # A password that is not percent-encoded ends up here: do not show it.
        raise RedisUrlError(
            "the Redis URL's hosts: expected HOST:PORT, separated by commas, after the @; "
            "percent-encode @ : / # ? and % in a user name or a password"
        )
    if kind is TopologyKind.SERVER and len(found) > 1:
        raise RedisUrlError(
            f"the Redis URL names {len(found)} hosts: name one, or say what they are with the scheme "
            f"{TopologyKind.SENTINEL} or {TopologyKind.CLUSTER}"
        )
    return found


def _with_path(url: RedisUrl, path: str) -> RedisUrl:
    master, _, database = path.partition("/") if url.kind is TopologyKind.SENTINEL else ("", "", path)
    if url.kind is TopologyKind.SENTINEL and not master:
        raise RedisUrlError(
            "the Redis URL's path: sentinels need the master's name, as in redis+sentinel://HOST/MASTER/0"
        )
    return replace(url, master=master, database=_database(url.kind, database or "0"))


def _database(kind: TopologyKind, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text):
        raise RedisUrlError(f"the Redis URL's database {text[:20]!r}: expected a number, 0 most of the time")
    if kind is TopologyKind.CLUSTER and int(text):
        raise RedisUrlError(f"the Redis URL's database {int(text)}: a cluster has only database 0, leave it out")
    return int(text)


def _with_options(url: RedisUrl, query: str) -> RedisUrl:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "db":
            url = replace(url, database=_database(url.kind, value))
        elif name in _TLS_OPTIONS:
            if url.tls is None:
                raise RedisUrlError(
                    f"the Redis URL's option {name}: needs TLS, say {url.kind.replace('redis', 'rediss')}"
                )
            key, read = _TLS_OPTIONS[name]
            url = replace(url, tls=replace(url.tls, **{key: _read(name, value, read)}))
        elif name in _OPTIONS:
            key, read = _OPTIONS[name]
            url = replace(url, **{key: _read(name, value, read)})
        else:
            known = ", ".join(sorted({"db", *_OPTIONS, *_TLS_OPTIONS}))
            raise RedisUrlError(f"the Redis URL's option {name[:40]!r} is not known: expected some of {known}")
    return url


def _read(name: str, value: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise RedisUrlError(f"the Redis URL's option {name}: {error}") from None


def _text(value: str) -> str:
    if not value:
        raise ValueError("is empty, leave it out")
    return value


def _pem(value: str) -> str:
    # Not encoded, a + comes as a space, and line ends are lost.
    found = re.findall(r"-----BEGIN CERTIFICATE-----\s+[A-Za-z0-9+/=\s]+?-----END CERTIFICATE-----", value)
    if not found or any(" " in body for one in found for body in one.splitlines()[1:-1]):
        raise ValueError(
            "expected certificates as PEM text, percent-encoded (+ as %2B, line ends as %0A): jq -sRr @uri ca.crt"
        )
    return value


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ValueError("expected seconds from 0.1 to 3600, such as 5")
    return seconds


def _truth(value: str) -> bool:
    if value.lower() not in {"true", "yes", "1", "false", "no", "0"}:
        raise ValueError("expected true or false")
    return value.lower() in {"true", "yes", "1"}


def _requirement(value: str) -> str:
    if value not in {"required", "optional", "none"}:
        raise ValueError("expected required, optional or none")
    return value


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "username": ("username", _text),
    "password": ("password", _text),
    "sentinel_username": ("sentinel_username", _text),
    "sentinel_password": ("sentinel_password", _text),
    "client_name": ("client_name", _text),
    "socket_connect_timeout": ("connect_seconds", _seconds),
    "socket_timeout": ("answer_seconds", _seconds),
}
_TLS_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "ssl_ca_certs": ("ca_certs", _text),
    "ssl_ca_data": ("ca_data", _pem),
    "ssl_certfile": ("certfile", _text),
    "ssl_keyfile": ("keyfile", _text),
    "ssl_cert_reqs": ("cert_reqs", _requirement),
    "ssl_check_hostname": ("check_hostname", _truth),
}
