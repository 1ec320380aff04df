"""The peers' own Python environment, made on demand in the cache from `worker_peers.lock`.

Ours cannot hold them: aiobotocore pins an older botocore. Renew the lock with
`uv pip compile --universal --python-version 3.11 --generate-hashes -o worker_peers.lock worker_peers.in`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import places
from tests.cluster.progress import step

HERE = Path(__file__).parent
LOCK = HERE / "worker_peers.lock"


def interpreter(lock: Path = LOCK, name: str = "peers") -> Path:
    """Return the Python of the environment of a lock, which has this Python's version; the first call makes it.

    Raises CalledProcessError when the packages cannot be installed.
    """
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = places.cache() / "bench" / f"{name}-{key}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        with step(f"environment of the {name}"):
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
            subprocess.run((*pip, "--require-hashes", "--requirement", lock), check=True)
            ready.touch()
    return python


def versions(python: Path, *packages: str) -> str:
    """Say which versions of `packages` an environment has."""
    ask = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", ask, *packages], check=True, capture_output=True, text=True).stdout.strip()
