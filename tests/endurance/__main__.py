"""`python -m tests.endurance NAME [options]`: a long run; `steps` is the only one.

The processes that a run forks do not run this module again, because of its name.
"""

import sys

from tests.endurance import steps

if __name__ == "__main__":
    if sys.argv[1:2] != ["steps"]:
        sys.exit("python -m tests.endurance steps [--help]")
    sys.exit(steps.main(sys.argv[2:]))
