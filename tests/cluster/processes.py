"""Daemons of the embedded cluster: started in our own cgroup, identified by process id and start time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import cgroups, paths
from tests.cluster.shell import ClusterError, run, wait_until
from tests.eventually import NotInTimeError, eventually_sync

STOP_SECONDS = 8.0
ENTER = 'echo $$ > "$0/cgroup.procs"; echo $$ > "$1.new"; mv "$1.new" "$1"; log=$2; shift 2; exec "$@" >>"$log" 2>&1'
LOG_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Daemon:
    """One daemon: its name (of its log and its pidfile), its command line and additional environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def start(daemon: Daemon) -> bool:
    """Start the daemon unless it runs; return whether it was started.

    It is detached from this process, writes to its own log, and is in our cgroup before its first instruction, so that
    its children are in it, too.
    """
    if is_running(daemon.name):
        return False
    pidfile, log = _pidfile(daemon.name), log_of(daemon.name)
    for folder in (pidfile.parent, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    pidfile.unlink(missing_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.unlink()
    argv: list[str | Path] = [
        "setsid",
        "--fork",
        "sh",
        "-c",
        ENTER,
        cgroups.daemons_group(),
        pidfile,
        log,
        *daemon.argv,
    ]
    run(argv, env=daemon.env, timeout_seconds=STOP_SECONDS)
    wait_until(pidfile.exists, f"{daemon.name} has started", timeout_seconds=STOP_SECONDS, every_seconds=0.01)
    pid = int(pidfile.read_text())
    pidfile.write_text(json.dumps({"pid": pid, "started": _start_time(pid)}))
    return True


def is_running(name: str) -> bool:
    """Whether the daemon's process runs; the start time distinguishes it from a later process with the same id."""
    return _pid(name) is not None


def died(name: str) -> bool:
    """Whether the daemon was started, was not stopped, and does not run."""
    return _pidfile(name).exists() and not is_running(name)


def forget_dead(names: Iterable[str]) -> None:
    """Forget the named daemons that died, so that `died` only covers later starts."""
    for name in names:
        if died(name):
            _pidfile(name).unlink()


def stop(name: str, *, grace_seconds: float = STOP_SECONDS) -> None:
    """Send SIGTERM, and SIGKILL after `grace_seconds`. Without a process this does nothing."""
    pid = _pid(name)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)

        def ended() -> bool:
            return _pid(name) is None

        try:
            eventually_sync(f"{name} has ended", ended, seconds=grace_seconds, every_seconds=0.02)
        except NotInTimeError:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until(ended, f"{name} has ended after SIGKILL", timeout_seconds=STOP_SECONDS, every_seconds=0.02)
    _pidfile(name).unlink(missing_ok=True)


def pid_of(name: str) -> int:
    """The daemon's process id. Raises ClusterError when it does not run."""
    pid = _pid(name)
    if pid is None:
        raise ClusterError(f"{name} does not run; see {log_of(name)}")
    return pid


def command_line(pid: int) -> str:
    """The words of a process's command line; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def log_of(name: str) -> Path:
    """The daemon's log file."""
    return paths.logs() / f"{name}.log"


def last_lines(name: str, count: int = 15) -> str:
    """The last lines of the daemon's log, for an error message."""
    log = log_of(name)
    if not log.exists():
        return f"{log} does not exist"
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


def _pidfile(name: str) -> Path:
    return paths.run() / "pids" / name


def _pid(name: str) -> int | None:
    try:
        noted = json.loads(_pidfile(name).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(noted, dict) or _start_time(noted["pid"]) != noted["started"]:
        return None
    return int(noted["pid"])


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of the process; None when it has ended or is a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])
