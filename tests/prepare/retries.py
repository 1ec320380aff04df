"""Retries actions that failed because of the network or of another package manager, and no others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from tests.cluster.progress import say
from tests.cluster.shell import ClusterError

T = TypeVar("T")
WAITS_SECONDS = (5.0, 20.0)
TRANSIENT = re.compile(
    r"temporary failure|(could not|couldn't|unable to|failed to) (connect|resolve|get lock|lock|fetch|download)"
    r"|timed? ?out|connection (was )?(reset|refused|closed|aborted|failed)|connectionerror|network is unreachable"
    r"|tls handshake|unexpected eof|broken pipe|incompleteread|hash sum mismatch|mirror sync|remote end closed"
    r"|too many requests|\b(429|500|502|503|504)\b|econnreset|etimedout|eai_again|dial tcp",
    re.IGNORECASE,
)


def retried(what: str, action: Callable[[], T], *, waits_seconds: tuple[float, ...] = WAITS_SECONDS) -> T:
    """Return what the action returns; a failure that looks like the network's is tried again after each wait.

    Raises the action's last ClusterError; an error of any other kind is raised at once.
    """
    for wait in waits_seconds:
        try:
            return action()
        except ClusterError as failed:
            found = TRANSIENT.search(str(failed))
            if found is None:
                raise
            say(f"{what}: {found[0]!r} in the error; trying again in {wait:.0f} s")
            time.sleep(wait)
    return action()
