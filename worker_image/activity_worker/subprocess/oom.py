"""Counts the processes of this container that the kernel killed because memory was full."""

from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
#: Where the kernel counts them: the unified hierarchy's file, then the older one's.
_COUNTERS: Final = ("memory.events", "memory/memory.oom_control")


class OomKillCounter:
    """The kernel's count of OOM kills. The caller claims one kill for each child that died by SIGKILL.

    `root` is the mount of the control groups. If it does not show the container's own (outside a container, or on
    another system), the count is not known.
    """

    def __init__(self, root: Path = CGROUPS) -> None:
        self._root = root
        self._claimed = self._count() or 0

    def claim(self) -> bool | None:
        """Claim one kill and return True, False if all kills are claimed; None if the count is not known."""
        count = self._count()
        if count is None:
            return None
        if count <= self._claimed:
            return False
        self._claimed += 1
        return True

    def _count(self) -> int | None:
        for name in _COUNTERS:
            try:
                lines = (self._root / name).read_text().splitlines()
            except OSError:
                continue
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
        return None
