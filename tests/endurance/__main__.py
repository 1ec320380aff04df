"""`python -m tests.endurance NAME [options]`: a long run, `steps` or `broker`.

The processes that a run forks do not run this module again, because of its name.
"""

import sys

from tests.endurance import broker, steps

RUNS = {"steps": steps.main, "broker": broker.main}

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in RUNS:
        sys.exit(f"python -m tests.endurance {'|'.join(RUNS)} [--help]")
    sys.exit(RUNS[sys.argv[1]](sys.argv[2:]))
