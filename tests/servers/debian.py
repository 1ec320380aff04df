"""Installing a server's package without letting it start anything."""

import os
import shutil
from pathlib import Path
from typing import Any

from tests.cluster.shell import run

NOBODY = 65534


def find(program: str, package: str, *folders: str) -> Path:
    """Return a program's path, its package installed first when it is missing. Raises ClusterError with apt's words."""
    if (found := _look(program, folders)) is not None:
        return found
    # Runlevel 1: what the package would start as a service stays down.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    run(["apt-get", "update", "-q"], env=quiet)
    run(["apt-get", "install", "-y", "-q", "--no-install-recommends", package], env=quiet)
    if (found := _look(program, folders)) is None:
        raise FileNotFoundError(f"{package} was installed, but {program} is in none of {', '.join(folders) or 'PATH'}")
    return found


def unprivileged() -> dict[str, Any]:
    """Return the arguments of a subprocess that gives up root; none when there is nothing to give up."""
    return {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}


def own(folder: Path) -> None:
    """Give a folder to the user that the servers run as."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)


def _look(program: str, folders: tuple[str, ...]) -> Path | None:
    for pattern in folders:
        found = sorted(Path("/").glob(pattern.lstrip("/") + "/" + program))
        if found:
            return found[-1]
    on_path = shutil.which(program)
    return None if on_path is None else Path(on_path)
