"""The cluster's life: up, down, current; and images for it. Chooses between kind and embedded."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import debian, embedded, images, kind, places
from tests.cluster.cluster import Cluster, read_record, write_record
from tests.cluster.progress import say, step
from tests.cluster.shell import ClusterError


@dataclass(frozen=True)
class Image:
    """A built image: its tag, a key that changes with its content, and its archive (None in a Docker engine).

    A Deployment whose image keeps its tag is not rolled out: put `key` into an annotation of its pods.
    """

    tag: str
    key: str
    archive: Path | None


def up() -> Cluster:
    """Return a running cluster, well: booted, repaired, or found so.

    Raises ClusterError saying what is missing when this machine can have neither kind nor embedded.
    """
    with _alone():
        uses_kind = _uses_kind()
        if not uses_kind and (reason := debian.why_not_embedded()) is not None:
            raise ClusterError(f"no local cluster: no Docker engine answers `docker info`, and {reason}")
        with step("cluster up"):
            cluster = kind.up() if uses_kind else embedded.up()
        write_record(cluster)
        return cluster


def down() -> None:
    """Stop the cluster and leave the machine as it was. Nothing happens when there is none."""
    with _alone():
        noted = read_record()
        with step("cluster down"):
            if noted is not None and noted.kind == "kind":
                kind.down()
            else:
                embedded.down()
        places.record().unlink(missing_ok=True)


def current() -> Cluster | None:
    """The cluster that runs and answers; None when there is none or it is not well."""
    noted = read_record()
    if noted is None:
        return None
    well = kind.is_well(noted) if noted.kind == "kind" else embedded.is_well(noted)
    return noted if well else None


def build_image(dockerfile: Path, context: Path, tag: str, *, build_args: Mapping[str, str] | None = None) -> Image:
    """Build a Dockerfile under `tag` (a version other than latest); an unchanged build is a look-up.

    Embedded passes `BASE`, a Debian image with Python 3.13, unless `build_args` has one; with kind the
    Dockerfile's own default holds. Raises ClusterError with the builder's last lines.
    """
    with _alone("images.lock"):
        if _uses_kind():
            return Image(tag, kind.build(dockerfile, context, tag, build_args or {}), None)
        archive = images.build(dockerfile, context, tag, build_args or {})
        return Image(tag, archive.stem, archive)


def load_image(image: Image) -> None:
    """Make a built image known to the running cluster's node. Raises ClusterError when no cluster runs."""
    noted = read_record()
    if noted is None:
        raise ClusterError("no cluster runs: `python -m tests.cluster up` first")
    if image.archive is None:
        kind.load(image.tag)
    else:
        with _alone("images.lock"):
            images.load(image.tag, image.archive)


def _uses_kind() -> bool:
    noted = read_record()
    return noted.kind == "kind" if noted is not None else debian.docker_answers()


@contextmanager
def _alone(name: str = "cluster.lock") -> Iterator[None]:
    """Hold a lock of the cache, so that two commands do not build or boot the same thing at once."""
    places.cluster().mkdir(parents=True, exist_ok=True)
    with (places.cluster() / name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that holds {places.cluster() / name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
