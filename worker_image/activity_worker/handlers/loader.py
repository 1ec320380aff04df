"""From `module:attribute` to what a worker runs: a registry of handlers, a plain function, or a `Tasks` object."""

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from activity_worker.errors import HandlerSignatureError
from activity_worker.handlers.table import HandlerTable


class HandlerLoadError(Exception):
    """The handler cannot be loaded; the message names it and the reason."""


def load_handler(name: str) -> Any:
    """Import `module:attribute` and check its handlers; raises `HandlerLoadError`.

    Returns an `Activities`, a function, or a `Tasks` of durable multi-step tasks (see `is_tasks`).
    """
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise HandlerLoadError(
                f"{name}: importing it failed: no module named {error.name!r}{_place(error)}"
            ) from error
        places = ", ".join(_folders())
        raise HandlerLoadError(f"{name}: no module named {error.name!r} in {places}; is the file there?") from error
    except BaseException as error:
        raise HandlerLoadError(
            f"{name}: importing it failed: {type(error).__name__}: {error}{_place(error)}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            taken = module_name in sys.stdlib_module_names
            hint = ", which is a module of Python's own: rename the file" if taken else ""
            raise HandlerLoadError(f"{name}: the module {module_name!r} has no {path!r}{hint}")
        found = getattr(found, part)
    if is_tasks(found):
        return found
    try:
        HandlerTable(found)
    except HandlerSignatureError as error:
        raise HandlerLoadError(f"{name}: {error}") from error
    return found


def is_tasks(found: object) -> bool:
    """Return whether the object is a `Tasks`; only after the import of its module can there be one."""
    module = sys.modules.get("activity_worker.steps.runner.tasks")
    return module is not None and isinstance(found, module.Tasks)


def _folders() -> list[str]:
    """Return where a user's modules are looked for."""
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys([str(Path.cwd()), *filter(None, python_path)]))


def _place(error: BaseException) -> str:
    """Return the file and line of the user's code from which an import failed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
