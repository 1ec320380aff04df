"""Making Python environments with uv, the installer of the development environment, and its cache of packages."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import paths
from tests.cluster.progress import step
from tests.cluster.shell import MissingError, run
from tests.environments import Environment
from tests.prepare.retries import retried


def make(environment: Environment) -> None:
    """Make an environment from its lock unless it exists and is complete. Raises ClusterError with uv's last lines."""
    if environment.ready.exists():
        return
    with step(f"Python environment of {environment.name}"):
        # --no-deps: a lock is complete, and leaves out packages that are never loaded.
        create(environment.home, environment.python, "--no-deps", "--requirement", environment.lock)
        if environment.mend is not None:
            run(["sh", environment.mend, environment.home])
        environment.ready.touch()


def create(home: Path, python: str, *packages: str | Path) -> None:
    """Make an environment in `home`, replacing an old one, and install packages (arguments of `uv pip install`)."""
    uv = paths.cache() / "uv" / "bin" / "uv"
    if not uv.exists():
        raise MissingError(f"uv is not in {uv.parent}")
    cache = {"UV_CACHE_DIR": str(paths.cache() / "uv-cache")}
    run([uv, "venv", "--quiet", "--clear", "--python", python, home], env=cache)
    words: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        home / "bin" / "python",
    ]
    retried(f"packages of {home.name}", lambda: run([*words, *packages], env=cache))
