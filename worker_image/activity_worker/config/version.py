"""The version of the runtime."""

from importlib import metadata


def version() -> str:
    """Return the runtime's version, `unknown` where it is not installed as a package."""
    try:
        return metadata.version("activitypool")
    except metadata.PackageNotFoundError:
        return "unknown"
