"""The file system of a bare Debian: debootstrap's minimum with git, make and Python."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import packages
from tests.cluster import paths
from tests.cluster.progress import step
from tests.cluster.shell import run
from tests.prepare import apt
from tests.prepare.retries import retried

SUITE = "trixie"  # Python 3.13, which LocalEmu needs
PACKAGES = "git,make,python3-venv,ca-certificates"
RECIPE = f"debootstrap --variant=minbase --include={PACKAGES} {SUITE}"
#: The machine's download settings, copied to the same paths of the root where they exist.
SETTINGS = (
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/share/ca-certificates",
    "/etc/pip.conf",
    "/etc/uv/uv.toml",
    "/etc/npmrc",
    "/etc/apt/apt.conf",
    "~/.config/pip/pip.conf",
    "~/.config/uv/uv.toml",
    "~/.config/go/env",
    "~/.npmrc",
)


def folder() -> Path:
    """The folder of the cache that holds roots and the tarball."""
    return paths.cache() / "bare"


@contextmanager
def bare_root(checkout: Path, to: str) -> Iterator[Path]:
    """Yield a fresh root with the committed content of `checkout` at the path `to`; it is deleted at the end."""
    tarball = _tarball()
    for former in folder().glob("root-*"):
        shutil.rmtree(former) if former.is_dir() else former.unlink()
    root = Path(tempfile.mkdtemp(prefix="root-", dir=folder()))
    root.chmod(0o755)
    try:
        with step("unpacking the bare root"):
            run(["tar", "--extract", "--numeric-owner", "--file", tarball, "--directory", root])
            # dpkg would wait for the disk after every file; this root need not survive a power cut.
            (root / "etc" / "dpkg" / "dpkg.cfg.d" / "unsafe-io").write_text("force-unsafe-io\n")
            for setting in SETTINGS:
                _copy(Path(setting).expanduser(), root)
            run(["git", "clone", "--quiet", "--no-hardlinks", checkout, root / to.lstrip("/")])
        yield root
    finally:
        shutil.rmtree(root)
        root.with_suffix(".binds").unlink(missing_ok=True)


def _tarball() -> Path:
    """Return the archive of the root, made once for this recipe."""
    tarball = folder() / f"{SUITE}-{hashlib.sha256(RECIPE.encode()).hexdigest()[:12]}.tar"
    if not tarball.exists():
        folder().mkdir(parents=True, exist_ok=True)
        needed = ("debootstrap", "debian-archive-keyring.gpg")
        apt.install([program for program in packages.CLUSTER if program.name in needed])
        with step(f"bare Debian {SUITE}"), tempfile.TemporaryDirectory(dir=folder()) as scratch:
            retried("debootstrap", lambda: _debootstrap(Path(scratch), tarball))
    return tarball


def _debootstrap(scratch: Path, tarball: Path) -> None:
    root = scratch / "root"
    shutil.rmtree(root, ignore_errors=True)
    run([*RECIPE.split(), root])
    run(
        ["tar", "--create", "--numeric-owner", "--exclude=./dev/*", "--file", scratch / "tar", "--directory", root, "."]
    )
    (scratch / "tar").rename(tarball)


def _copy(setting: Path, root: Path) -> None:
    if not setting.exists():
        return
    there = root / os.fspath(setting).lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    if setting.is_dir():
        shutil.copytree(setting, there, dirs_exist_ok=True)
    else:
        shutil.copyfile(setting, there)
