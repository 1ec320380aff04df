"""For a child process: its end when the process that started it ends."""

import ctypes
import signal


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however that happens."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
