"""PURE: tracebacks that begin in the user's code, for the cause of a failed task and the record of a failed step."""

import os
import traceback
from pathlib import Path
from typing import Final

#: The last frames of a traceback that are kept.
_MAX_FRAMES: Final = 50
_OURS: Final = str(Path(__file__).parent) + os.sep
_STDLIB: Final = str(Path(os.__file__).parent) + os.sep
#: Folders of installed packages, also of those below the standard library's folder.
_PACKAGES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def user_traceback(error: BaseException) -> traceback.TracebackException | None:
    """Return the traceback of `error` and of those it was raised from; None where no frame is the user's.

    Each begins in the user's code or a package: the frames of the runtime before it, and of the standard library that
    the runtime calls, are left out. It has 50 frames at most, the last ones.
    """
    told = traceback.TracebackException.from_exception(error, limit=-_MAX_FRAMES)
    left = False
    for part in _chain(told):
        theirs = next((at for at, frame in enumerate(part.stack) if _is_theirs(frame.filename)), None)
        kept = part.stack[theirs:] if theirs is not None else []
        part.stack[:] = kept
        left = left or bool(kept)
    return told if left else None


def _is_theirs(filename: str) -> bool:
    """Tell whether a frame is neither the runtime's nor the standard library's, which the runtime calls, too."""
    if filename.startswith((_OURS, "<frozen ")):
        return False
    return not filename.startswith(_STDLIB) or any(folder in filename for folder in _PACKAGES)


def _chain(told: traceback.TracebackException) -> list[traceback.TracebackException]:
    found, waiting = [], [told]
    while waiting:
        part = waiting.pop()
        found.append(part)
        waiting += [
            other for other in (part.__cause__, part.__context__, *(part.exceptions or ())) if other is not None
        ]
    return found
