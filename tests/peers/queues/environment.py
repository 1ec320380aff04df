"""The package and what it needs, installed once from the lock file into the cache."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.cluster import places
from tests.cluster.shell import run
from tests.servers import debian

_HERE = Path(__file__).parent
_FILES = ("package.json", "package-lock.json")


def node() -> Path:
    """Return the path of node, installed first when it is missing."""
    return debian.find("node", "nodejs")


def modules() -> Path:
    """Return the folder of the installed packages, keyed by the lock: another lock, another folder."""
    key = hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in _FILES)).hexdigest()[:12]
    top = places.cache() / "peers"
    ready = top / f"queues-{key}"
    if not ready.exists():
        top.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix="building-", dir=top))
        try:
            _install(building)
            # Whoever comes second, of two that install at once, finds it done.
            if not ready.exists():
                building.rename(ready)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return ready / "node_modules"


def _install(folder: Path) -> None:
    node()
    npm = debian.find("npm", "npm")
    for name in _FILES:
        shutil.copy(_HERE / name, folder)
    run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, timeout_seconds=300)
