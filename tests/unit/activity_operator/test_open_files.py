"""The limit of open files is raised to the hard limit."""

import subprocess
import sys

SCRIPT = """
import resource
from activity_operator.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
returned = raise_limit()
print(returned, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_soft_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    """Runs in a separate process, because a lowered hard limit cannot be raised again."""
    output = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout

    assert output.split() == ["128", "128", "128"]
