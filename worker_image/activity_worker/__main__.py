"""`python -m activity_worker` and the `activity-worker` command."""

import sys

from activity_worker import cli


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
