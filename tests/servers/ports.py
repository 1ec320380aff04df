"""A free port."""

import random
import socket
from contextlib import suppress

#: Below those that outgoing connections are given: nobody's connection takes it before a server does, or between a
#: server's end and its next start.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listened on just now."""
    while True:
        port = random.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
