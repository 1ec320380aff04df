"""Operators as processes, forked from one that has imported everything: a start takes a fork instead of two seconds.

`python -m tests.faults.forked_operators` reads a JSON line for each operator: its settings, its environment, its log
file. It answers with the process's id. The operator's `run` is the product's own; its constants are shorter (`HASTE`),
so that a scenario takes seconds.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

from activity_operator import __main__ as operator
from activity_operator import logs
from activity_operator.clock import clock
from activity_operator.policy_file import PolicyFile
from activity_operator.settings import OperatorSettings
from tests import measuring
from tests.servers.parent import die_with_parent

#: module -> constant -> its value here, in seconds. Settings cover the rest.
HASTE: dict[str, dict[str, float]] = {
    "activity_operator.core.decide": {"REPORT_PATH_RECHECK_SECONDS": 1.0},
    # No term is young: by SignalsStale the scenarios see whether the workers have reported to the leader.
    "activity_operator.core.events": {"YOUNG_TERM_SECONDS": 0.0},
    "activity_operator.cluster.status_writer": {"COUNTS_SECONDS": 1.0},
    "activity_operator.leases.manager": {"LEASE_CHECK_SECONDS": 0.5},
    "activity_operator.leases.rules": {"POOL_MISSING_SECONDS": 1.0, "OFFER_SECONDS": 2.0},
    "activity_operator.leases.takeover": {"LISTING_FIRST_SECONDS": 1.0},
    "activity_operator.reports.report_path": {"LEAST_TERM_SECONDS": 4.0},
    "activity_operator.cluster.apply": {"REJECTED_SECONDS": 2.0},
    "activity_operator.cluster.reconciler": {"REJECTED_SECONDS": 2.0, "RETRY_CAP_SECONDS": 2.0},
    "activity_operator.backlog.task_list_rounds": {"RETRY_CAP_SECONDS": 2.0, "THROTTLED_CAP_SECONDS": 2.0},
    "activity_operator.backlog.sentinel": {"RETRY_CAP_SECONDS": 2.0, "THROTTLED_CAP_SECONDS": 2.0},
}


def shorten_intervals() -> None:
    """Shorten the constants. Raises AttributeError when one does not exist any more."""
    for name, constants in HASTE.items():
        module = importlib.import_module(name)
        for constant, seconds in constants.items():
            getattr(module, constant)
            setattr(module, constant, seconds)


def main() -> None:
    """Fork an operator for each line until the input ends."""
    shorten_intervals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        asked = json.loads(line)
        if (pid := os.fork()) == 0:
            _operate(asked)
        print(pid, flush=True)


def _operate(asked: dict[str, Any]) -> None:
    die_with_parent()
    measuring.save_regularly()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(out, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(asked["env"])
    code = 1
    try:
        settings = OperatorSettings(**asked["settings"])
        policy = PolicyFile(settings.tenancy_file, clock)
        policy.load()
        logs.set_up(settings.log_level, settings.log_format)
        with asyncio.Runner(loop_factory=operator._loop_factory()) as runner:
            code = runner.run(operator.run(settings, policy))
    except BaseException:  # noqa: BLE001 - whatever it was
        # The process ends below by os._exit, without a traceback of its own.
        traceback.print_exc()
    finally:
        print(f"the operator ended with code {code}", flush=True)
        os._exit(code)


if __name__ == "__main__":
    main()
