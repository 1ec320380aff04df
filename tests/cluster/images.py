"""Container images without Docker or a registry: Debian by debootstrap, Dockerfiles by buildah, into containerd."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster import image_key, places
from tests.cluster.image_key import full_name
from tests.cluster.node import PAUSE_IMAGE, ctr
from tests.cluster.progress import say, step
from tests.cluster.shell import ClusterError, run

SUITE = "trixie"  # Python 3.13; LocalEmu needs 3.12 or newer
BASE_IMAGE = f"localhost/activitypool-base:{SUITE}-1"  # raise the number when the recipe below changes
BASE_PACKAGES = "python3-venv,ca-certificates"
LOADED = "localhost/activitypool-loaded"  # tagged so in containerd: the build of that key is there
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
# What a container never reads: caches, manuals, translations.
UNUSED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")


def base_image() -> str:
    """The name of the Debian base image in buildah's store, made on the first call (about 40 s)."""
    archive = _archives() / "base.tar"
    if not archive.exists():
        with step(f"base image: Debian {SUITE} with Python"), tempfile.TemporaryDirectory(dir=_archives()) as scratch:
            _debootstrap(Path(scratch) / "root")
            _build_layers(Path(scratch), BASE_IMAGE, 'FROM scratch\nADD root /\nCMD ["/bin/bash"]\n')
            _save(BASE_IMAGE, archive)
    if not _buildah("images", "--quiet", "--filter", f"reference={BASE_IMAGE}").strip():
        _buildah("pull", f"docker-archive:{archive}")
    return BASE_IMAGE


def pause_archive() -> Path:
    """The archive of the image that holds a pod's namespaces: one static C program."""
    archive = _archives() / "pause.tar"
    if not archive.exists():
        with step("pause image"), tempfile.TemporaryDirectory(dir=_archives()) as scratch:
            source = Path(scratch) / "pause.c"
            source.write_text(PAUSE_SOURCE)
            run(["gcc", "-static", "-Os", "-s", "-o", Path(scratch) / "pause", source])
            _build_layers(Path(scratch), PAUSE_IMAGE, 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
            _save(PAUSE_IMAGE, archive)
    return archive


def build(dockerfile: Path, context: Path, tag: str, build_args: Mapping[str, str]) -> Path:
    """Build a Dockerfile and return the archive of the image; an unchanged build is a look-up.

    `ARG BASE` receives the Debian base unless `build_args` names another. The machine's certificates
    and pip settings are there while RUN lines run, and not in the image. Raises ClusterError with
    buildah's last lines when the build fails.
    """
    arguments = {"BASE": base_image(), **build_args}
    key = image_key.of(dockerfile, context, arguments)
    archive = _archives() / f"{key}.tar"
    if archive.exists():
        if image_key.known(tag) != key:
            _buildah("tag", _built(key), full_name(tag))
    else:
        with step(f"image {tag}"), tempfile.TemporaryDirectory(dir=_archives()) as scratch:
            image_key.copy_context(context, Path(scratch) / "context")
            _build(dockerfile, Path(scratch), full_name(tag), arguments)
            _buildah("tag", full_name(tag), _built(key))
            _save(full_name(tag), archive)
    if (outdated := image_key.note(tag, key)) is not None:
        (_archives() / f"{outdated}.tar").unlink(missing_ok=True)
        _buildah("rmi", "--force", _built(outdated))
    return archive


def load(tag: str, archive: Path) -> None:
    """Import the archive into the running cluster's containerd, unless the same image is there under this tag."""
    marker = f"{LOADED}:{archive.stem}"
    digests = _digests()
    if marker in digests and digests.get(full_name(tag)) == digests[marker]:
        return
    with step(f"loading {tag}"):
        if marker in digests:
            ctr("images", "tag", "--force", marker, full_name(tag))
            return
        ctr("images", "import", archive)
        ctr("images", "tag", "--force", full_name(tag), marker)
        _forget_outdated()


def prepare_store(pause: Path, *, forget_containers: bool) -> None:
    """Make containerd's store fit for a boot: the pause image is in it, and no container of a former cluster."""
    if forget_containers and (former := ctr("containers", "ls", "--quiet").split()):
        say(f"forgetting {len(former)} containers of a former cluster")
        ctr("containers", "rm", *former)
    if PAUSE_IMAGE not in ctr("images", "ls", "--quiet").split():
        ctr("images", "import", pause)


def transient_folders() -> Sequence[Path]:
    """Folders of containerd's store that describe containers, not images: `down` deletes them."""
    store = places.container_store()
    return [store / "io.containerd.grpc.v1.cri", store / "io.containerd.runtime.v2.task"]


def _digests() -> dict[str, str]:
    """The names in containerd's store, each with the digest it stands for."""
    lines = ctr("images", "ls").splitlines()[1:]
    return {words[0]: words[2] for line in lines if len(words := line.split()) > 2}


def _forget_outdated() -> None:
    """Drop builds that are kept no more, so that their layers go; running containers keep what they run on."""
    digests = _digests()
    outdated = [name for name in digests if name.startswith(f"{LOADED}:") and not _is_kept(name)]
    named = {digest for name, digest in digests.items() if name not in outdated and not name.startswith("sha256:")}
    outdated += [name for name, digest in digests.items() if name.startswith("sha256:") and digest not in named]
    if outdated:
        ctr("images", "rm", *outdated)


def _is_kept(marker: str) -> bool:
    return (_archives() / f"{marker.rpartition(':')[2]}.tar").exists()


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


def _archives() -> Path:
    folder = places.cluster() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _buildah(command: str, *words: str | Path) -> str:
    """Run buildah on a store of our own, in a mount namespace of its own: killed half-way, it leaves no mount."""
    store = places.cluster() / "buildah"
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
