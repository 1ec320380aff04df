"""The command line `activity-worker`: `run`, `init`, `invoke`, `dev`, `conclude`, `steps`, `flows`, `broker`, `--version`."""

from activity_worker.cli.main import main
from activity_worker.cli.parser import make_parser

__all__ = ["main", "make_parser"]
