"""The peers' own Python environments, which `make bench` makes in the cache from their locks.

They cannot share ours: aiobotocore pins an older botocore. Renew a lock with
`uv pip compile --universal --python-version 3.11 --generate-hashes -o worker_peers.lock worker_peers.in`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.environments import Environment

HERE = Path(__file__).parent


def environment(name: str) -> Environment:
    """Return the environment of a lock in this folder, by its name without `.lock`, with this Python's version."""
    lock = HERE / f"{name}.lock"
    return Environment(name, lock, sys.executable, python_version=sys.version, made_by="python -m tests.prepare bench")


WORKERS = environment("worker_peers")
REDIS = environment("redis_peers")
STEPS = environment("steps_peer")
#: Every environment of this module.
EVERYTHING = (WORKERS, REDIS, STEPS)


def interpreter(of: Environment = WORKERS) -> Path:
    """Return the Python of an environment. Raises MissingError when the environment is not made."""
    return of.find() / "bin" / "python"


def versions(python: Path, *packages: str) -> str:
    """Return the versions of `packages` in an environment, as text."""
    ask = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", ask, *packages], check=True, capture_output=True, text=True).stdout.strip()
