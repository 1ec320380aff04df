"""Installing the npm packages of tests/peers/queues from their lock."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests import packages
from tests.cluster.progress import step
from tests.cluster.shell import run
from tests.peers.queues import environment
from tests.prepare.retries import retried


def install() -> None:
    """Install the packages unless they are there. Raises ClusterError with npm's last lines."""
    home = environment.home()
    if home.exists():
        return
    unfinished = home.with_suffix(".part")  # renamed when complete
    with step("npm packages of tests/peers/queues"):
        retried("npm ci", lambda: _install(unfinished))
        unfinished.rename(home)


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in environment.FILES:
        shutil.copy(environment.HERE / name, folder)
    words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([packages.find("npm"), *words], cwd=folder, timeout_seconds=300)
