"""The process's limit of open files, which includes connections."""

import logging
import resource

log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit to the hard limit and return the limit in force.

    A node's soft limit is often 1,024, for programs that use select(2); its hard limit is far higher. Two polls for
    each of 500 pools at zero exceed the soft limit. Then no connection could be opened, for reports or for writes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays %d: %s", soft, error)
            return soft
    return hard
