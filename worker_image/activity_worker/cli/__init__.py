"""The command line `activity-worker`: the parser of its commands, and `main`, which runs one."""

from activity_worker.cli.main import main
from activity_worker.cli.parser import make_parser

__all__ = ["main", "make_parser"]
