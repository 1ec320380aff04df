"""PURE: the URL of a PostgreSQL database that holds a task store, read in one way by workers and operator.

    postgresql://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full&sslrootcert=/etc/ca.crt

Options are libpq's. `ssl_ca_data`, the CA's certificates themselves, is for readers that do not share a disk. Several
hosts are separated by commas. Errors show no part of the URL that may be secret.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from activity_worker.wire.host_names import read_hosts

DEFAULT_PORT: Final = 5432
#: How long a connection may take to be made, in seconds.
CONNECT_SECONDS: Final = 10.0
SHAPE: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

_SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")
_NAME_OF_OPTION = re.compile(r"[a-z_]{1,40}")
_ENCODE = "percent-encode @ : / # ? and % in a user name or a password"


class StoreUrlError(ValueError):
    """The URL names no database that a task store can use; it is not repeated, since it may hold a password."""


class SslMode(StrEnum):
    """How much TLS there must be, as in libpq."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


#: Modes in which the server's certificate is looked at.
CHECKED: Final = (SslMode.REQUIRE, SslMode.VERIFY_CA, SslMode.VERIFY_FULL)


@dataclass(frozen=True, slots=True)
class StoreTls:
    """How TLS is spoken: the CA (its file, `system` for the machine's, or its text), and a client certificate."""

    mode: SslMode = SslMode.PREFER
    root_file: str | None = None
    root_text: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @property
    def files(self) -> Mapping[str, str]:
        """Files that must be where the URL is used, by the options that name them."""
        named = {"sslrootcert": self.root_file, "sslcert": self.cert_file, "sslkey": self.key_file}
        return {name: file for name, file in named.items() if file is not None and file != "system"}


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A parsed URL. It can be hashed, and the password is in no repr. What is None has the driver's default."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    tls: StoreTls = StoreTls()
    #: Which of several hosts will do; a store needs one that can be written to.
    target: str | None = None
    connect_seconds: float = CONNECT_SECONDS
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """Hosts, ports and database, for people."""
        return f"{','.join(address(*host) for host in self.hosts)}/{self.database or ''}"


def address(host: str, port: int) -> str:
    """Return HOST:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_sqlite(text: str) -> bool:
    """Whether a URL is that of an SQLite database, and not of PostgreSQL; raises `StoreUrlError` for any other."""
    scheme, separator, _ = text.partition("://")
    kind = scheme.partition("+")[0]
    if not separator or kind not in {"sqlite", "postgresql", "postgres"}:
        raise StoreUrlError("a task store is a database at sqlite:///FILE or postgresql://USER@HOST/NAME")
    return kind == "sqlite"


def check_store_url(text: str) -> None:
    """Raise `StoreUrlError` for a URL that no worker could use, wherever it runs."""
    if not is_sqlite(text):
        parse_store_url(text)


def parse_store_url(text: str) -> StoreUrl:
    """Return the parsed URL; raises `StoreUrlError`."""
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise StoreUrlError(f"the task store's URL is none of a PostgreSQL database: expected {SHAPE}")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise StoreUrlError(f"the task store's URL cannot be read: expected {SHAPE}; {_ENCODE}") from None
    if "#" in text or "@" in parts.path or "@" in parts.query:
        # What follows such a character may be the rest of a password.
        raise StoreUrlError(f"the task store's URL has a # or a second @: {_ENCODE}")
    who, _, _ = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    url = StoreUrl(
        hosts=_hosts(parts),
        user=unquote(user) or None,
        password=unquote(password) or None,
        database=unquote(parts.path[1:]) or None,
    )
    url = _with_options(url, parts.query)
    if url.target is None and len(url.hosts) > 1:
        url = replace(url, target="read-write")
    return url


def _hosts(parts: SplitResult) -> tuple[tuple[str, int], ...]:
    found = read_hosts(parts.netloc.rpartition("@")[2], DEFAULT_PORT)
    if found is None:
        raise StoreUrlError(f"the task store's URL: expected {SHAPE}, several hosts separated by commas; {_ENCODE}")
    return found


def _with_options(url: StoreUrl, query: str) -> StoreUrl:
    tls, settings = url.tls, []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _TLS_OPTIONS:
            key, read = _TLS_OPTIONS[name]
            tls = replace(tls, **{key: _read(name, value, read)})
        elif name in _OPTIONS:
            key, read = _OPTIONS[name]
            url = replace(url, **{key: _read(name, value, read)})
        elif name in _SETTINGS:
            settings.append((name, value))
        else:
            shown = name if _NAME_OF_OPTION.fullmatch(name) else "?"
            known = ", ".join(sorted({*_OPTIONS, *_TLS_OPTIONS, *_SETTINGS}))
            raise StoreUrlError(f"the task store's URL: the option {shown} is not known, expected some of {known}")
    if tls.root_file is not None and tls.root_text is not None:
        raise StoreUrlError("the task store's URL: sslrootcert and ssl_ca_data are both given, keep one of them")
    if tls.root_text is not None and tls.mode not in CHECKED:
        modes = ", ".join(CHECKED)
        raise StoreUrlError(f"the task store's URL: the option ssl_ca_data needs sslmode to be one of {modes}")
    return replace(url, tls=tls, settings=tuple(settings))


def _read(name: str, value: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise StoreUrlError(f"the task store's URL: the option {name}: {error}") from None


def _mode(value: str) -> SslMode:
    if value not in set(SslMode):
        raise ValueError(f"expected one of {', '.join(SslMode)}")
    return SslMode(value)


def _target(value: str) -> str:
    targets = ("any", "read-write", "primary")
    if value not in targets:
        raise ValueError(f"expected one of {', '.join(targets)}: a store is written to")
    return value


def _text(value: str) -> str:
    if not value:
        raise ValueError("is empty, leave it out")
    return value


def _pem(value: str) -> str:
    if "-----BEGIN CERTIFICATE-----" not in value:
        raise ValueError("expected certificates in PEM, percent-encoded")
    return value


def _seconds(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}", value) or not int(value):
        raise ValueError("expected seconds from 1 to 9999, such as 5")
    return float(value)


_TLS_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "sslmode": ("mode", _mode),
        "sslrootcert": ("root_file", _text),
        "ssl_ca_data": ("root_text", _pem),
        "sslcert": ("cert_file", _text),
        "sslkey": ("key_file", _text),
    }
)
_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = MappingProxyType(
    {"target_session_attrs": ("target", _target), "connect_timeout": ("connect_seconds", _seconds)}
)
#: Passed on to the server.
_SETTINGS = ("application_name", "options", "search_path")
