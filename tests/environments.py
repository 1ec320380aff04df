"""Python environments beside the development environment, for packages whose pins differ from ours.

`make prepare` makes them, and `python -m tests.prepare bench` those of benchmarks' peers (tests/prepare). Everything
else only looks for them here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import paths
from tests.cluster.shell import MissingError


@dataclass(frozen=True)
class Environment:
    """An environment from a complete lock: another lock, Python or mending script makes another environment."""

    name: str
    lock: Path
    python: str
    """The interpreter that it is made with."""
    python_version: str = ""
    """Further text that tells one interpreter from another."""
    mend: Path | None = None
    """A shell script that is run on the environment after its packages are installed."""
    made_by: str = "make prepare"
    """The command that makes it."""

    @property
    def home(self) -> Path:
        """The folder of the environment."""
        parts = [self.lock.read_bytes(), self.python.encode(), self.python_version.encode()]
        if self.mend is not None:
            parts.append(self.mend.read_bytes())
        return paths.cache() / "environments" / f"{self.name}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"

    @property
    def ready(self) -> Path:
        """The file that is there when the environment is whole."""
        return self.home / ".ready"

    def find(self) -> Path:
        """Return the folder of the environment. Raises MissingError unless it is there and whole."""
        if not self.ready.exists():
            what = f"the Python environment of {self.name} is not made from {self.lock.name} as it is now"
            raise MissingError(what, self.made_by)
        return self.home
