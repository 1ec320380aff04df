"""The cluster's life: up, down, current, and the images for it. Chooses between kind and embedded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.cluster import embedded, images, kind, paths, requirements
from tests.cluster.cluster import Cluster, read_record, write_record
from tests.cluster.image_key import Recipe
from tests.cluster.locks import alone
from tests.cluster.progress import step
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
    """Return a running, healthy cluster: booted, repaired, or found.

    Raises ClusterError that names what is missing when this machine can run neither kind nor embedded.
    """
    with alone(paths.cluster() / "cluster.lock"):
        in_docker = uses_kind()
        if not in_docker and (reason := requirements.why_not_embedded()) is not None:
            raise ClusterError(f"no local cluster: no Docker engine answers `docker info`, and {reason}")
        with step("cluster up"):
            cluster = kind.up() if in_docker else embedded.up()
        write_record(cluster)
        return cluster


def down() -> None:
    """Stop the cluster and restore the machine's state. Without a cluster this does nothing."""
    with alone(paths.cluster() / "cluster.lock"):
        noted = read_record()
        with step("cluster down"):
            if noted is not None and noted.kind == "kind":
                kind.down()
            else:
                embedded.down()
        paths.record().unlink(missing_ok=True)


def current() -> Cluster | None:
    """The cluster that runs and answers; None when there is none or it is not healthy."""
    noted = read_record()
    if noted is None:
        return None
    well = kind.is_well(noted) if noted.kind == "kind" else embedded.is_well(noted)
    return noted if well else None


def image_key_of(recipe: Recipe) -> str:
    """The content key of an image: another Dockerfile, argument or copied file makes another key."""
    return kind.key(recipe) if uses_kind() else images.key(recipe)


def find_image(recipe: Recipe) -> Image:
    """Return the image, which `make prepare` has built (tests/prepare).

    Embedded passes `BASE`, a Debian image with Python 3.13, unless the recipe has one; with kind the Dockerfile's own
    default holds. Raises MissingError when the image is not built from the present files.
    """
    if uses_kind():
        kind.find(recipe)
        return Image(recipe.tag, kind.key(recipe), None)
    archive = images.find(recipe)
    return Image(recipe.tag, archive.stem, archive)


def load_image(image: Image) -> None:
    """Make a built image known to the running cluster's node. Raises ClusterError when no cluster runs."""
    noted = read_record()
    if noted is None:
        raise ClusterError("no cluster runs: `python -m tests.cluster up` first")
    if image.archive is None:
        kind.load(image.tag)
    else:
        with alone(paths.cluster() / "images.lock"):
            images.load(image.tag, image.archive)


def uses_kind() -> bool:
    """Whether the recorded cluster is kind's; without one, whether the next one will be."""
    noted = read_record()
    return noted.kind == "kind" if noted is not None else requirements.docker_answers()
