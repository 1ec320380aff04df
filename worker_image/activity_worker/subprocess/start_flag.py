"""One byte of memory that a supervisor and a child share: which task's handler has begun.

A task whose handler has begun is never run in another child, and one that has not is. The supervisor asks when the
child is dead, or at a deadline. A message for each task would cost both processes a call to the system and the
supervisor a turn of its loop: a tenth of a no-op task.
"""

import mmap
import os
import sys


class StartFlag:
    """The memory, in one of both processes. `fd` is a descriptor of it."""

    def __init__(self, fd: int) -> None:
        self._byte = mmap.mmap(fd, 1)

    def set(self, number: int) -> None:
        """Tell that the handler of the task `number` begins."""
        self._byte[0] = _mark(number)

    def is_set(self, number: int) -> bool:
        """Return whether the handler of the task `number` has begun; one task at a time."""
        return self._byte[0] == _mark(number)


def open_memory() -> int:
    """Return the descriptor of new memory of zeros, for a `StartFlag` in each process. The caller closes it."""
    if sys.platform == "linux":
        fd = os.memfd_create("activity-start-flag")
    else:
        import tempfile  # noqa: PLC0415 - slow to import, and every child has this module

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, 1)
    return fd


def _mark(number: int) -> int:
    # 0 is what new memory has. Tasks that follow each other have other marks.
    return number % 255 + 1
