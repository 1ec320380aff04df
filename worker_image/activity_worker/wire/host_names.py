"""The hosts that a URL names, before anybody asks a resolver for them."""

import re
from typing import Final
from urllib.parse import unquote

#: A name that begins with %2F is a folder with a server's socket.
_HOST: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]@/,]+))(?::(?P<port>[0-9]{1,5}))?")

#: HOST:PORT; an IPv6 address stands in brackets.
_HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


def is_host_port(text: str) -> bool:
    """Return whether a text is HOST:PORT. gRPC also reads paths of sockets, and other schemes, as addresses."""
    return _HOST_AND_PORT.fullmatch(text) is not None and 1 <= int(text.rpartition(":")[2]) <= 65535


def read_hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...] | None:
    """Return the hosts of a list such as `a,b:6380,[::1]:6379`; None when one of them can never be reached."""
    found: list[tuple[str, int]] = []
    for one in text.split(","):
        match = _HOST.fullmatch(one)
        name = unquote(match["six"] or match["name"]) if match else ""
        port = int(match["port"] or default_port) if match else 0
        if not name or not _is_resolvable(name) or not 0 < port < 65536:
            return None
        found.append((name, port))
    return tuple(found)


def _is_resolvable(host: str) -> bool:
    """Whether a resolver can be asked for the name; it raises UnicodeError for an empty or overlong part (`a..b`)."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host
