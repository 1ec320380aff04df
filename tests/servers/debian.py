"""The user that servers of tests run as: one without rights, where the tests run as root."""

import os
from pathlib import Path
from typing import Any

NOBODY = 65534


def unprivileged() -> dict[str, Any]:
    """Return the arguments of a subprocess that gives up root; none when there is nothing to give up."""
    return {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}


def own(folder: Path) -> None:
    """Give a folder to the user that the servers run as."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
