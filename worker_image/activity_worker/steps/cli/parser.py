"""The commands of `activity-worker steps`. Nothing of the store is imported: `activity-worker run` starts as fast."""

import argparse
from typing import Any

from activity_worker.contract import Env

#: The environment variable that names the store's database.
STORE = Env.STORE_URL.value


def add_parser(commands: Any) -> None:
    """Add `steps` and what is under it to the command line."""
    steps = commands.add_parser("steps", help="durable multi-step tasks: run, create, and look after them")
    steps.set_defaults(steps_parser=steps)
    under = steps.add_subparsers(dest="steps_command", metavar="COMMAND")
    run = _command(under, "run", "run due instances until SIGTERM or Ctrl-C")
    run.add_argument("tasks", metavar="module:tasks", help="a Tasks object")
    run.add_argument("--slots", type=int, default=1, metavar="N", help="instances at a time; default 1")
    run.add_argument("--lease-seconds", type=float, default=60.0, metavar="SECONDS", help="default 60")
    run.add_argument("--health-port", type=int, metavar="PORT", help="for /livez /readyz /metrics; default none")
    new = _command(under, "new", "create an instance and print its id")
    new.add_argument("tasks", metavar="module:tasks", help="a Tasks object")
    new.add_argument("task", help="the task's name")
    new.add_argument("data", nargs="?", default="{}", help="a JSON object")
    new.add_argument("--id", metavar="ID", help="an id of your own; the same again changes nothing; default a new id")
    new.add_argument("--in", dest="later", metavar="SPAN", help="start it so much later, such as 12h; default at once")
    listed = _command(under, "ls", "list instances, the newest first")
    listed.add_argument("--task", action="append", default=[], help="of this task; may be repeated")
    listed.add_argument("--limit", type=int, default=50, metavar="N", help="default 50")
    prune = _command(under, "prune", "delete what was completed long ago, with its history")
    prune.add_argument("--older-than", required=True, metavar="SPAN", help="since it was completed, such as 30d")
    prune.add_argument("--keep-failed", action="store_true", help="delete only what succeeded")
    for name, text in (
        ("show", "show an instance: its steps with calls, times and errors"),
        ("history", "list every revision of an instance"),
        ("retry", "start a failed instance again from its failed step"),
        ("cancel", "cancel an instance: completed steps are reversed"),
        ("pause", "let an instance stand still at its next sub-step"),
        ("resume", "let a paused instance go on"),
    ):
        _command(under, name, text).add_argument("id", help="the instance")


def _command(under: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = under.add_parser(name, help=text)
    parser.add_argument("--store", metavar="URL", default="", help=f"the task store's database (environment: {STORE})")
    parser.add_argument("--json", action="store_true", help="print JSON, errors too; with run: log lines of JSON")
    return parser
