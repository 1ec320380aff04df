"""Installing Debian packages: one `apt-get update` and one `apt-get install` for all that are missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import packages
from tests.cluster.progress import step
from tests.cluster.shell import ClusterError, run
from tests.packages import Program
from tests.prepare.retries import retried

POLICY = Path("/usr/sbin/policy-rc.d")
NO_SERVICES = "#!/bin/sh\n# Of `make prepare`, while it installs: no package starts a service.\nexit 101\n"
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
OPTIONS = ("-q", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3")


def install(programs: Sequence[Program]) -> None:
    """Install the packages of the programs that are missing; none of them starts a service.

    Raises ClusterError with apt's last lines, or with the missing packages when this user cannot install any.
    """
    wanted = packages.missing(programs)
    if not wanted:
        return
    _check_that_we_can_install(wanted)
    with step(f"apt-get install {' '.join(wanted)}"):
        retried("apt-get update", lambda: run(["apt-get", "update", *OPTIONS], env=QUIET))
        install_words = ["apt-get", "install", "-y", "--no-install-recommends", *OPTIONS, *wanted]
        with _no_services():
            retried("apt-get install", lambda: run(install_words, env=QUIET))
    if still := packages.missing(programs):
        raise ClusterError(f"apt-get installed them, but these are still not found: {', '.join(still)}")


def _check_that_we_can_install(wanted: Sequence[str]) -> None:
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"no apt-get here: install what Debian calls {', '.join(wanted)}, then run `make prepare` again"
        )
    if os.geteuid() != 0:
        command = f"sudo apt-get install --no-install-recommends {' '.join(wanted)}"
        raise ClusterError(f"only root installs packages: run `{command}`, then `make prepare` again")


@contextmanager
def _no_services() -> Iterator[None]:
    """Forbid packages to start services, as Debian's policy-rc.d does; a policy of the machine's own stays."""
    ours = not POLICY.exists() or POLICY.read_text(errors="replace") == NO_SERVICES
    if ours:
        POLICY.write_text(NO_SERVICES)
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)
