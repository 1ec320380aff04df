"""Which packages of this project's extras are missing, and what helps."""

import importlib.util
import os

from activity_worker.config.settings import HANDLER_PYTHON

#: A package of each extra, by whose absence the extra is missing.
_PACKAGES = {"worker": "aiohttp", "redis": "hiredis", "steps": "sqlalchemy", "taskbroker": "grpc"}


def missing(extra: str) -> bool:
    """Return whether the packages of an extra are not installed."""
    return importlib.util.find_spec(_PACKAGES[extra]) is None


def fix(extra: str) -> str:
    """Return what brings the packages of an extra.

    In the image that is another image: `pip install` there installs for the handler, and not for the worker.
    """
    if os.environ.get(HANDLER_PYTHON):
        return "build on the worker's image without VARIANT=-slim"
    return f"pip install 'activitypool[{extra}]'"


def message(what: str, extra: str) -> str:
    """Return the message for `what`, which needs a missing extra."""
    return f"{what} needs packages that are not installed: {fix(extra)}"
