"""Runs commands inside a root: in namespaces of their own, with the machine's download caches."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import cgroups, paths
from tests.cluster.shell import ClusterError
from tests.prepare.bare import root as bare

CGROUP = "activitypool-bare"
ENTER = Path(__file__).with_name("enter.sh")
CACHE = "/ap"  # the ACTIVITYPOOL_CACHE inside
#: Prefixes of this machine's variables that configure downloads.
DOWNLOADS = (
    "PIP_", "UV_", "npm_config_", "NODE_EXTRA_CA_CERTS", "GOPROXY", "GOSUMDB", "GONOSUM", "GOPRIVATE", "SSL_CERT_",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY",
    "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip


def environment() -> dict[str, str]:
    """The whole environment inside: a clean one, with this machine's download settings."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(DOWNLOADS)}
    settings.pop("PIP_FIND_LINKS", None)  # may name a folder of this machine
    return settings | {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "ACTIVITYPOOL_CACHE": CACHE,
        "UV_LINK_MODE": "copy",  # the cache of packages is another mount
        "PYTHONUNBUFFERED": "1",
        # With CI set, a suite fails instead of skipping tests whose needs are missing.
        "CI": "1",
    }


def shared() -> dict[Path, str]:
    """The download caches of this machine, and where they are seen inside."""
    home = Path.home()
    same = (
        home / ".cache" / "pip",
        home / ".cache" / "go-build",
        home / "go" / "pkg" / "mod",
        home / ".npm" / "_cacache",
    )
    return {folder: str(folder) for folder in same} | {
        paths.cache() / "uv-cache": f"{CACHE}/uv-cache",
        bare.folder() / "apt-archives": "/var/cache/apt/archives",
    }


def run(root: Path, command: Sequence[str], *, cwd: str, network: bool) -> None:
    """Run a command inside the root; its output is this process's. Without `network` it has only a loopback of its own.

    All its processes have ended when this returns. Raises ClusterError when the command fails.
    """
    namespaces = ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--cgroup", "--ipc", "--uts"]
    if not network:
        namespaces.append("--net")
        (root / "etc" / "resolv.conf").write_text("")
    binds = root.with_suffix(".binds")
    for folder in shared():
        folder.mkdir(parents=True, exist_ok=True)
    binds.write_text("".join(f"{folder} {place}\n" for folder, place in shared().items()))
    with _cgroup() as joins:
        inside = ["env", "-i", *(f"{name}={value}" for name, value in environment().items())]
        inside += ["sh", "-c", 'cd "$0" && exec "$@"', cwd, *command]
        enter = ["unshare", *namespaces, "sh", str(ENTER), str(root), str(binds), *inside]
        process = subprocess.Popen(["sh", "-c", f'{joins} exec setpriv --pdeathsig KILL "$@"', "sh", *enter])
        try:
            code = process.wait()
        finally:
            process.send_signal(signal.SIGKILL)  # has no effect when it has ended
            process.wait()
    if code != 0:
        raise ClusterError(f"`{' '.join(command)}` ended with status {code} in the bare root; see its output above")


@contextmanager
def _cgroup() -> Iterator[str]:
    """Make a cgroup in every hierarchy; yield the shell commands that join it. It is removed at the end."""
    groups = cgroups.make(CGROUP)
    try:
        yield " ".join(f'echo $$ > "{group}/cgroup.procs";' for group in groups)
    finally:
        cgroups.kill(CGROUP)
        cgroups.remove(CGROUP)
