"""Which packages of this project's extras are missing, and the command that installs them."""

import importlib.util

#: A package of each extra, by whose absence the extra is missing.
_PACKAGES = {"worker": "aiohttp", "redis": "hiredis", "steps": "sqlalchemy", "taskbroker": "grpc"}


def missing(extra: str) -> bool:
    """Return whether the packages of an extra are not installed."""
    return importlib.util.find_spec(_PACKAGES[extra]) is None


def command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'activitypool[{extra}]'"


def message(what: str, extra: str) -> str:
    """Return the message for `what`, which needs a missing extra."""
    return f"activity-worker: {what} needs packages that are not installed: {command(extra)}"
