"""The operator imports a driver with the first pool that needs it."""

import subprocess
import sys

#: The operator is imported once, and a fork of that process makes one reader or none.
READERS_IN_FORKS = """
import os, sys
import activity_operator.wiring
from activity_operator import counted_sources
for kind in (None, "redis", "taskStore", "taskbroker"):
    if os.fork() == 0:
        if kind:
            counted_sources.make_reader(kind, lambda *_: None)
        loaded = [name for name in ("hiredis", "asyncpg", "grpc", "redis", "sqlalchemy") if name in sys.modules]
        print(kind, *loaded, flush=True)
        os._exit(0)
    os.wait()
"""


def test_only_the_drivers_in_use_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", READERS_IN_FORKS], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["None", "redis hiredis", "taskStore asyncpg", "taskbroker grpc"]
