"""`python -m tests.prepare.bare`: `make prepare` and a smoke of each suite in a bare Debian with HEAD in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster import machine
from tests.cluster.locks import alone
from tests.cluster.progress import say
from tests.cluster.shell import ClusterError
from tests.prepare.bare import inside
from tests.prepare.bare.root import bare_root, folder

CHECKOUT = Path(__file__).parents[3]
THERE = "/root/activitypool"
#: The steps in the root: a title, a command, and whether it has a network.
STAGES = (
    ("make prepare in the bare root", ("make", "prepare"), True),
    ("make prepare again, without a network: it finds everything", ("make", "prepare"), False),
    ("a smoke of each suite, without a network", (".venv/bin/python", "-m", "tests.prepare.bare.smokes"), False),
)


def main() -> int:
    """Run it; return 0 when everything succeeded, 1 with the reason when not."""
    if sys.platform != "linux" or os.geteuid() != 0:
        print("bare: needs root on Linux, for it makes mounts and namespaces", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # the root is deleted however it ends
    if _has_changes():
        say("uncommitted changes are left out: the root gets the content of HEAD")
    try:
        # In the root these settings are read-only.
        with alone(folder() / "lock"), machine.sysctls(machine.OF_A_KUBELET), bare_root(CHECKOUT, THERE) as root:
            for title, command, network in STAGES:
                began = time.monotonic()
                say(f"==> {title}")
                inside.run(root, command, cwd=THERE, network=network)
                say(f"==> {title}: {time.monotonic() - began:.0f} s")
        say("the bare root is deleted")
    except ClusterError as failed:
        print(f"bare: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bare: interrupted; the root is deleted", file=sys.stderr)
        return 130
    return 0


def _has_changes() -> bool:
    words = ["git", "-C", str(CHECKOUT), "status", "--porcelain"]
    return bool(subprocess.run(words, capture_output=True, check=False).stdout)


if __name__ == "__main__":
    sys.exit(main())
