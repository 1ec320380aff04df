"""Building container images without Docker: Debian by debootstrap, Dockerfiles by buildah, into archives."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import image_key, images, paths
from tests.cluster.image_key import Recipe, full_name
from tests.cluster.images import BASE_IMAGE
from tests.cluster.node import PAUSE_IMAGE
from tests.cluster.progress import step
from tests.cluster.shell import ClusterError, run

SUITE = "trixie"  # Python 3.13, which LocalEmu needs
BASE_PACKAGES = "python3-venv,ca-certificates"
MACHINE_CERTIFICATES = Path("/etc/ssl/certs")
PAUSE_SOURCE = """\
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void leave(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) {
  signal(SIGINT, leave);
  signal(SIGTERM, leave);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
"""
# Files that a container never reads: caches, manuals, translations.
UNUSED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")

#: Open files and processes of a build. Debian 13's buildah asks for more than some machines let root have; Debian 12's
#: sets 32,768 processes before it looks at its options, and root without CAP_SYS_RESOURCE cannot raise that again.
LIMIT = 32_768


def build(recipe: Recipe) -> bool:
    """Build a recipe's archive unless it exists; return whether it was built.

    `ARG BASE` receives the Debian base unless the recipe names another. The machine's certificates and pip settings are
    there while RUN lines run, and not in the image. Raises ClusterError with buildah's last lines when the build fails.
    """
    key, archive = images.key(recipe), images.archive_of(recipe)
    is_new = not archive.exists()
    if is_new:
        _build_archive(recipe, key, archive)
    elif image_key.known(recipe) != key:
        _buildah("tag", _built(key), full_name(recipe.tag))
    for outdated in image_key.note(recipe, key, images.in_use):
        images.delete(outdated)
        _buildah("rmi", "--force", _built(outdated))
    return is_new


def build_pause() -> None:
    """Build the pause image, which holds a pod's namespaces, unless it exists: one static C program."""
    archive = images.pause_archive()
    if archive.exists():
        return
    with step("pause image"), tempfile.TemporaryDirectory(dir=images.archives()) as scratch:
        source = Path(scratch) / "pause.c"
        source.write_text(PAUSE_SOURCE)
        run(["gcc", "-static", "-Os", "-s", "-o", Path(scratch) / "pause", source])
        _build_layers(Path(scratch), PAUSE_IMAGE, 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
        _save(PAUSE_IMAGE, archive)


def build_base() -> None:
    """Build the Debian base image unless it is in buildah's store (about 40 s the first time)."""
    archive = images.archives() / "base.tar"
    if not archive.exists():
        title = f"base image: Debian {SUITE} with Python"
        with step(title), tempfile.TemporaryDirectory(dir=images.archives()) as scratch:
            _debootstrap(Path(scratch) / "root")
            _build_layers(Path(scratch), BASE_IMAGE, 'FROM scratch\nADD root /\nCMD ["/bin/bash"]\n')
            _save(BASE_IMAGE, archive)
    if not _buildah("images", "--quiet", "--filter", f"reference={BASE_IMAGE}").strip():
        _buildah("pull", f"docker-archive:{archive}")


def _build_archive(recipe: Recipe, key: str, archive: Path) -> None:
    with step(f"image {recipe.tag}"), tempfile.TemporaryDirectory(dir=images.archives()) as scratch:
        image_key.copy_context(recipe.context, Path(scratch) / "context")
        _build(recipe.dockerfile, Path(scratch), full_name(recipe.tag), {"BASE": BASE_IMAGE, **recipe.arguments})
        _buildah("tag", full_name(recipe.tag), _built(key))
        _save(full_name(recipe.tag), archive)


def _debootstrap(root: Path) -> None:
    run(["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, root])
    for unused in UNUSED:
        for entry in (root / unused).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _build_layers(scratch: Path, name: str, dockerfile: str) -> None:
    (scratch / "Dockerfile").write_text(dockerfile)
    _buildah("bud", "--isolation", "chroot", "--file", scratch / "Dockerfile", "--tag", name, scratch)


def _build(dockerfile: Path, scratch: Path, name: str, arguments: Mapping[str, str]) -> None:
    options: list[str | Path] = ["--isolation", "chroot", "--layers", "--pull-never", "--format", "docker"]
    options += ["--volume", f"{MACHINE_CERTIFICATES}:{MACHINE_CERTIFICATES}:ro"]
    for kind, limit in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        most = min(LIMIT, resource.getrlimit(limit)[1])
        options += ["--ulimit", f"{kind}={most}:{most}"]
    if settings := image_key.pip_settings():
        (scratch / "pip.conf").write_text(settings)
        options += ["--volume", f"{scratch / 'pip.conf'}:/etc/pip.conf:ro"]
    for key, value in arguments.items():
        options += ["--build-arg", f"{key}={value}"]
    _buildah("bud", *options, "--file", dockerfile.absolute(), "--tag", name, scratch / "context")


def _save(name: str, archive: Path) -> None:
    unfinished = archive.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    _buildah("push", name, f"docker-archive:{unfinished}:{name}")
    unfinished.rename(archive)


def _built(key: str) -> str:
    return f"localhost/activitypool-built:{key}"


def _buildah(command: str, *words: str | Path) -> str:
    """Run buildah on our own store, in its own mount namespace, so that a killed build leaves no mount."""
    store = paths.cluster() / "buildah"
    policy = store / "policy.json"
    if not policy.exists():
        store.mkdir(parents=True, exist_ok=True)
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    where: list[str | Path] = ["--root", store / "root", "--runroot", store / "run", "--storage-driver", "overlay"]
    checked: list[str | Path] = ["--signature-policy", policy] if command in ("bud", "push", "pull") else []
    try:
        return run(["unshare", "--mount", "--propagation", "private", "buildah", *where, command, *checked, *words])
    except ClusterError as failed:
        raise ClusterError(f"buildah {command}: {failed}") from failed
