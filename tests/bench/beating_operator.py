"""The operator with a beat in its main loop: `python -m tests.bench.beating_operator` notes the late beats in a file.

A standstill is the time in which the loop runs nothing else. An answer of the health port needs several turns of the
loop, so it is longer than the longest standstill.
"""

import asyncio
import os
import time
from pathlib import Path

from activity_operator import __main__ as operator
from activity_operator.policy_file import PolicyFile
from activity_operator.settings import OperatorSettings

#: The environment variable that names the file.
VARIABLE = "BENCH_LATE_BEATS"
BEAT_SECONDS = 0.005
#: A beat that is less late is not noted.
NOTED_SECONDS = 0.02
_run = operator.run


def longest(file: Path, since: float) -> float:
    """Return the seconds of the longest standstill since then (monotonic seconds); 0 when no beat was late."""
    rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    return max((float(late) for at, late in rows if float(at) >= since), default=0.0)


async def _run_with_beat(settings: OperatorSettings, policy: PolicyFile) -> int:
    beating = asyncio.create_task(_beat(Path(os.environ[VARIABLE])))
    try:
        return await _run(settings, policy)
    finally:
        beating.cancel()


async def _beat(file: Path) -> None:
    with file.open("a", encoding="utf-8", buffering=1) as out:
        before = time.monotonic()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if (late := now - before - BEAT_SECONDS) > NOTED_SECONDS:
                out.write(f"{now:.3f} {late:.4f}\n")
            before = now


if __name__ == "__main__":
    operator.run = _run_with_beat
    operator.main()
