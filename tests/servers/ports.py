"""A free port."""

import itertools
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

#: Below those that outgoing connections are given: nobody's connection takes it before a server does, or between a
#: server's end and its next start.
_PORTS = range(20_000, 32_000)


def _in_turn() -> Iterator[int]:
    """Yield the ports one after the other, from anywhere: nobody is told a port that another is about to listen on."""
    begin = random.randrange(len(_PORTS))
    return itertools.cycle((*_PORTS[begin:], *_PORTS[:begin]))


_turn = _in_turn()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listened on just now, another one at each call."""
    for port in _turn:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the ports go round for ever")
