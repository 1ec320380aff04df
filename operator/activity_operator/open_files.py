"""How many files and connections the process may have open."""

import logging
import resource

log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit to the hard one and return it.

    A node's default is often 1,024 soft, kept low for programs that use select(2), and far higher hard. Two polls for
    each of 500 pools at zero pass it: from then on no connection could be opened, neither to report nor to write.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays %d: %s", soft, error)
            return soft
    return hard
