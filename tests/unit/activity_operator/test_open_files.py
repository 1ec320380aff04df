"""The limit of open files: as high as the process may have it."""

import subprocess
import sys

SCRIPT = """
import resource
from activity_operator.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
told = raise_limit()
print(told, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    """In a process of its own, because a lowered hard limit cannot be raised again."""
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout

    assert said.split() == ["128", "128", "128"]
