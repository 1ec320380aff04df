"""A free port."""

import itertools
import os
import random
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

#: Lower than the ports that the kernel gives to outgoing connections: no connection takes a port before a server does,
#: or between a server's end and its next start.
_PORTS = range(20_000, 32_000)
#: FIRST-END (END is not in), set by `tests.suites` for each of the suites that run side by side.
_VARIABLE = "ACTIVITYPOOL_TEST_PORTS"


def _ours() -> range:
    """Return the ports of this process: a suite has its own, and so has each pytest-xdist worker (gw0, gw1) of it."""
    given = os.environ.get(_VARIABLE)
    ports = range(*map(int, given.split("-"))) if given else _PORTS
    found = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if found is None:
        return ports
    # A worker that replaces a crashed one has a number beyond their count.
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    each = len(ports) // count
    begin = int(found[1]) % count * each
    return ports[begin : begin + each]


def _in_turn() -> Iterator[int]:
    """Yield the ports one after the other from a random start, so that a port is not handed out twice in a row."""
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
