"""`python -m tests.endurance NAME [options]`: a long run; `steps` is the one there is.

A module of this name is not run again by each process that a run forks.
"""

import sys

from tests.endurance import steps

if __name__ == "__main__":
    if sys.argv[1:2] != ["steps"]:
        sys.exit("python -m tests.endurance steps [--help]")
    sys.exit(steps.main(sys.argv[2:]))
