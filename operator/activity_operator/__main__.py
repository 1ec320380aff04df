"""The `activity-operator` program: reads the settings, builds the components, and runs until SIGTERM or SIGINT.

`activity-operator simulate` simulates a pool instead, without a cluster.
"""

import asyncio
import logging
import os
import signal
import sys

from activity_operator import garbage_collection, logs, open_files
from activity_operator.clock import clock
from activity_operator.cluster.kube import from_kubeconfig, in_cluster
from activity_operator.core.tenancy import PolicyError
from activity_operator.metrics import Metrics
from activity_operator.policy_file import PolicyFile
from activity_operator.settings import OperatorSettings, OperatorSettingsError
from activity_operator.simulate import command
from activity_operator.wiring import build_process
from activity_worker.contract import VERSION

EXIT_USAGE = 2
EXIT_FAILED = 1

log = logging.getLogger("activity_operator")


async def run(settings: OperatorSettings, policy: PolicyFile) -> int:
    """Run the operator and return the exit code."""
    load = from_kubeconfig(settings.kubeconfig) if settings.kubeconfig else in_cluster
    process = await build_process(settings, load, Metrics(VERSION), policy)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, process.end)
    failure = await process.run()
    return EXIT_FAILED if failure else 0


async def run_process(settings: OperatorSettings, policy: PolicyFile) -> int:
    """Run the operator with short pauses of the garbage collector, and return the exit code."""
    async with garbage_collection.short_pauses():
        return await run(settings, policy)


def main() -> None:
    """Run the program: parse flags and environment, set up logging, and exit with the operator's code."""
    if sys.argv[1:2] == ["simulate"]:
        command.main()
    try:
        settings = OperatorSettings.read(sys.argv[1:], os.environ)
        policy = PolicyFile(settings.tenancy_file, clock)
        policy.load()
    except (OperatorSettingsError, PolicyError) as error:
        print(f"activity-operator: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    logs.set_up(settings.log_level, settings.log_format)
    open_files.raise_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        sys.exit(runner.run(run_process(settings, policy)))


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    """Return uvloop's loop if it is installed: 1,000 idle TLS polls take 55 MB on it, 298 MB on the standard loop."""
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    main()
