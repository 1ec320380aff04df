"""The files whose change starts the worker of `activity-worker dev` again."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


class SourceFiles:
    """The Python files below some folders, and files by name."""

    def __init__(self, folders: Sequence[Path], files: Sequence[str] = ()) -> None:
        self._folders = folders
        self._files = files
        self._seen = self._look()

    def changed(self) -> str | None:
        """Return a file that is new, gone or other than at the last call, None if there is none."""
        before, self._seen = self._seen, self._look()
        return min(dict(before.items() ^ self._seen.items()), default=None)

    def _look(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in (*self._files, *(path for folder in self._folders for path in _python_files(folder))):
            try:
                status = Path(path).stat()
            except OSError:
                continue
            found[str(path)] = (status.st_mtime_ns, status.st_size)
        return found


def _python_files(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT and name[0] != "." and not Path(place, name, "pyvenv.cfg").exists()
        ]
        yield from (str(Path(place, name)) for name in names if name.endswith(".py"))
