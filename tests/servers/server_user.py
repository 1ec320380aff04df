"""The user of the tests' servers: an unprivileged one where the tests run as root."""

import os
from pathlib import Path
from typing import Any

NOBODY = 65534


def unprivileged() -> dict[str, Any]:
    """Return the arguments of a subprocess that gives up root; without root, none."""
    return {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}


def own(folder: Path) -> None:
    """Give a folder to the servers' user."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
