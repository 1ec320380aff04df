"""Operators that leak on purpose (`SOAK_LEAK`) or trace their memory; otherwise as in `tests.faults.forked_operators`.

`python -m tests.soak.leaking_operators` is the process that operators are forked from.

The leaks show that the judge can fail. "memory:6" keeps 6 MB more a minute, "files:30" 30 files; "lag:200" blocks the
main loop every second, by 200 ms more each minute.
"""

import asyncio
import importlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from activity_operator import __main__ as operator
from activity_operator.policy_file import PolicyFile
from activity_operator.settings import OperatorSettings
from tests.faults import forked_operators
from tests.faults.forked_election_operators import _block
from tests.soak import memory_trace

VARIABLE = "SOAK_LEAK"
#: Modules that an operator imports when the first pool needs them. They are imported before, so that they do not count
#: as growth.
WHEN_NEEDED = tuple(f"activity_operator.backlog.{source}" for source in ("redis", "taskstore", "prometheus"))
LEAKS = ("memory", "files", "lag")
_kept: list[Any] = []
_run = operator.run


async def _with_extras(settings: OperatorSettings, policy: PolicyFile) -> int:
    extras = []
    if leak := os.environ.get(VARIABLE):
        kind, _, much = leak.partition(":")
        extras.append(asyncio.create_task(_leak(kind, float(much) / 60.0)))
    if folder := os.environ.get(memory_trace.VARIABLE):
        extras.append(asyncio.create_task(memory_trace.report_growth(Path(folder))))
    try:
        return await _run(settings, policy)
    finally:
        for extra in extras:
            extra.cancel()


async def _leak(kind: str, a_second: float) -> None:
    """Leak `a_second` each second."""
    owed = 0.0
    while True:
        await asyncio.sleep(1.0)
        owed += a_second
        if kind == "memory":
            _kept.append(os.urandom(int(a_second * 2**20)))
        elif kind == "lag":
            time.sleep(owed / 1000.0)  # noqa: ASYNC251 - that it blocks is the leak
        else:
            _kept.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(int(owed) - len(_kept)))


def main() -> None:
    """Fork operators until the input ends; SIGUSR1 blocks the loop of one for a moment."""
    for module in WHEN_NEEDED:
        importlib.import_module(module)
    # The forked operators inherit the handler.
    signal.signal(signal.SIGUSR1, _block)
    operator.run = _with_extras
    forked_operators.main()


if __name__ == "__main__":
    main()
