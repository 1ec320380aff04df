"""Container images in the embedded cluster: found in the cache by their content, and loaded into containerd.

`make prepare` builds them (tests/prepare/images.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import image_key, paths
from tests.cluster.image_key import Recipe, full_name
from tests.cluster.node import PAUSE_IMAGE, ctr
from tests.cluster.progress import say, step
from tests.cluster.shell import MissingError

BASE_IMAGE = "localhost/activitypool-base:trixie-1"  # raise the number when its recipe in tests/prepare changes
IN_USE_SECONDS = (
    3600.0  # how long after its last use by a test a build stays: longer than a run of the cluster's suites
)
LOADED = "localhost/activitypool-loaded"  # the tag in containerd of the loaded build with this key


def key(recipe: Recipe) -> str:
    """The content key of an image on the Debian base: `ARG BASE` receives it unless the recipe names another."""
    return image_key.of(recipe, {"BASE": BASE_IMAGE})


def archive_of(recipe: Recipe) -> Path:
    """The path of the image's archive, built or not."""
    return archives() / f"{key(recipe)}.tar"


def find(recipe: Recipe) -> Path:
    """Return the archive of the image, which counts as in use from now on for an hour.

    Raises MissingError when it is not built from the present files.
    """
    archive = archive_of(recipe)
    if not archive.exists():
        raise MissingError(f"the image {recipe.tag} is not built from the files as they are now")
    _used(archive.stem).touch()
    return archive


def in_use(key: str) -> bool:
    """Whether a test has asked for this build within the last hour."""
    used = _used(key)
    return used.exists() and time.time() - used.stat().st_mtime < IN_USE_SECONDS


def delete(key: str) -> None:
    """Delete the archive of this build, if there is one."""
    (archives() / f"{key}.tar").unlink(missing_ok=True)
    _used(key).unlink(missing_ok=True)


def _used(key: str) -> Path:
    return archives() / f"{key}.used"


def pause_archive() -> Path:
    """The path of the archive of the pause image, built or not."""
    return archives() / "pause.tar"


def find_pause() -> Path:
    """Return the archive of the pause image, which holds a pod's namespaces.

    Raises MissingError when it is not built.
    """
    if not pause_archive().exists():
        raise MissingError("the image of pods' namespaces (pause) is not built")
    return pause_archive()


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
    """Prepare containerd's store for a boot: add the pause image, remove containers of a former cluster."""
    if forget_containers and (former := ctr("containers", "ls", "--quiet").split()):
        say(f"forgetting {len(former)} containers of a former cluster")
        ctr("containers", "rm", *former)
    if PAUSE_IMAGE not in ctr("images", "ls", "--quiet").split():
        ctr("images", "import", pause)


def transient_folders() -> Sequence[Path]:
    """Folders of containerd's store that describe containers, not images: `down` deletes them."""
    store = paths.container_store()
    return [store / "io.containerd.grpc.v1.cri", store / "io.containerd.runtime.v2.task"]


def _digests() -> dict[str, str]:
    """The names in containerd's store, each with its digest."""
    lines = ctr("images", "ls").splitlines()[1:]
    return {words[0]: words[2] for line in lines if len(words := line.split()) > 2}


def _forget_outdated() -> None:
    """Delete old builds and their layers; running containers keep theirs."""
    digests = _digests()
    outdated = [name for name in digests if name.startswith(f"{LOADED}:") and not _is_kept(name)]
    named = {digest for name, digest in digests.items() if name not in outdated and not name.startswith("sha256:")}
    outdated += [name for name, digest in digests.items() if name.startswith("sha256:") and digest not in named]
    if outdated:
        ctr("images", "rm", *outdated)


def _is_kept(marker: str) -> bool:
    return (archives() / f"{marker.rpartition(':')[2]}.tar").exists()


def archives() -> Path:
    """The folder of the archives."""
    folder = paths.cluster() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
