"""A free port."""

import itertools
import os
import random
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

#: Below those that outgoing connections are given: nobody's connection takes it before a server does, or between a
#: server's end and its next start.
_PORTS = range(20_000, 32_000)


def _ours() -> range:
    """Return the ports of this process: of several that pytest runs side by side (gw0, gw1, ...) each has its own."""
    found = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if found is None:
        return _PORTS
    # One that came for another that crashed has a number beyond their count.
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    each = len(_PORTS) // count
    begin = int(found[1]) % count * each
    return _PORTS[begin : begin + each]


def _in_turn() -> Iterator[int]:
    """Yield the ports one after the other, from anywhere: nobody is told a port that another is about to listen on."""
    ours = _ours()
    begin = random.randrange(len(ours))
    return itertools.cycle((*ours[begin:], *ours[:begin]))


_turn = _in_turn()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listened on just now, another one at each call."""
    for port in _turn:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the ports go round for ever")
