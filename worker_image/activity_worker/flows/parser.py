"""The commands of `activity-worker flows`. Nothing of Redis is imported: `activity-worker run` starts as fast."""

import argparse
from typing import Any

from activity_worker.contract import Env


def add_parser(commands: Any) -> None:
    """Add `flows` and what is under it to the command line."""
    flows = commands.add_parser("flows", help="flows of Redis queues: watch their locks, and look after their jobs")
    flows.set_defaults(flows_parser=flows)
    under = flows.add_subparsers(dest="flows_command", metavar="COMMAND")
    monitor = _command(under, "monitor", "fail or put back jobs whose lock ran out, until SIGTERM or Ctrl-C")
    monitor.add_argument("--look-seconds", type=float, default=1.0, metavar="SECONDS", help="between looks; default 1")
    monitor.add_argument(
        "--gap-seconds",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="a job without a lock for so long has lost it; default 5",
    )
    monitor.add_argument(
        "--requeue", type=int, default=0, metavar="N", help="put a job back N times before it is failed; default 0"
    )
    monitor.add_argument("--log-format", choices=("auto", "text", "json"), default="auto", help="default auto")
    _command(under, "ls", "list the queues: jobs that wait, are under way, are under way without a lock")
    _command(under, "show", "show a job: where it is, its fields, its children").add_argument("id", help="the job")
    retry = _command(under, "retry", "let a failed job wait again in the queue where it failed")
    retry.add_argument("id", help="the job")
    retry.add_argument("--from", dest="from_queue", metavar="QUEUE", help="another queue of the flow instead")


def _command(under: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = under.add_parser(name, help=text)
    parser.add_argument("--redis-url", metavar="URL", help=f"the server (environment: {Env.REDIS_URL})")
    parser.add_argument("--flow", metavar="NAME", help=f"the flow (environment: {Env.REDIS_FLOW})")
    parser.add_argument(
        "--queue", action="append", metavar="NAME", help=f"a queue; may be repeated (environment: {Env.REDIS_QUEUE})"
    )
    parser.add_argument(
        "--child", action="append", default=[], metavar="PARENT:CHILD", help="a child queue; may be repeated"
    )
    return parser
