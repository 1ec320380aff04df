"""Free ports for the servers of tests."""

import itertools
import os
import random
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

#: The ports of test servers. They lie below those that the kernel gives to outgoing connections, so that no connection
#: takes a port before a server does, or between a server's end and its next start. They also lie below those of
#: NodePort Services (30000-32767): at the cluster's address kube-proxy sends such a connection to the Service.
PORTS = range(18_000, 30_000)
#: FIRST-END (END is exclusive), set by `tests.suites` for each of the suites that run at the same time.
_VARIABLE = "ACTIVITYPOOL_TEST_PORTS"


def _ours() -> range:
    """Return the ports of this process: a suite has its own, and so has each of its pytest-xdist workers (gw0, gw1)."""
    given = os.environ.get(_VARIABLE)
    ports = range(*map(int, given.split("-"))) if given else PORTS
    found = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if found is None:
        return ports
    # A worker that replaces a crashed one has a number beyond their count.
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    each = len(ports) // count
    begin = int(found[1]) % count * each
    return ports[begin : begin + each]


def _in_turn() -> Iterator[int]:
    """Yield the ports one after the other from a random start, so that two successive calls return different ports."""
    ours = _ours()
    begin = random.randrange(len(ours))
    return itertools.cycle((*ours[begin:], *ours[:begin]))


_turn = _in_turn()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which no process listened just now, another one at each call."""
    for port in _turn:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the ports go round for ever")
