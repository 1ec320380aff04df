"""The package and its dependencies, which `make prepare` installs from the lock file into the cache."""

import hashlib
from pathlib import Path

from tests import packages
from tests.cluster import paths
from tests.cluster.shell import MissingError

HERE = Path(__file__).parent
#: The files that list the packages.
FILES = ("package.json", "package-lock.json")


def node() -> Path:
    """Return the path of node. Raises MissingError when it is not installed."""
    return packages.find("node")


def home() -> Path:
    """Return the folder of the packages, installed or not. Its name has a hash of the lock."""
    key = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()[:12]
    return paths.cache() / "peers" / f"queues-{key}"


def modules() -> Path:
    """Return the folder of the installed packages. Raises MissingError when they are not installed."""
    if not home().exists():
        raise MissingError("the npm packages of tests/peers/queues are not installed from package-lock.json as it is")
    return home() / "node_modules"
