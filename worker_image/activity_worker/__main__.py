"""`python -m activity_worker` and the `activity-worker` command."""

import os
import sys


def _put_user_folders_last() -> None:
    """Let no file in the working directory or in `PYTHONPATH` take the place of a module that this process imports.

    In the image the interpreter leaves these folders out (`-I`). The handler's process has them.
    """
    folders = {"", os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))}  # noqa: PTH109
    sys.path.sort(key=lambda entry: entry in folders)


def main() -> None:
    """Run the command line and exit with its code."""
    _put_user_folders_last()
    from activity_worker import cli  # noqa: PLC0415 - after the order of folders is set

    sys.exit(cli.main())


if __name__ == "__main__":
    main()
