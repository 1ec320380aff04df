"""The parts of the preparation, in the order of their dependencies."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests import packages
from tests.bench import worker_peers
from tests.cluster import catalogue, go_builds, paths, requirements
from tests.cluster.image_key import Recipe
from tests.cluster.lifecycle import uses_kind
from tests.cluster.locks import alone
from tests.cluster.progress import say
from tests.cluster.shell import ClusterError
from tests.conformance.emulators import EMULATORS, MOTO, NoPythonError, environment_of
from tests.integration.worker.user_environment import SLIM_LIBRARIES, USER_LIBRARIES
from tests.packages import Program
from tests.peers.taskbroker.environment import PUBLISHED_CLIENT
from tests.prepare import apt, docker, environments, go, images, kafka, queues, room
from tests.prepare.retries import retried

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")  # tests/faults and tests/hostile run their own


def programs() -> tuple[Program, ...]:
    """The programs from Debian packages that this machine needs; the embedded cluster's only without Docker."""
    return packages.SERVERS if uses_kind() else (*packages.CLUSTER, *packages.SERVERS)


def install_packages() -> None:
    """Debian packages."""
    apt.install(programs())


def build_binaries() -> None:
    """Kubernetes' own binaries and Helm."""
    go.build(("kind", "kubectl", "helm", *CONTROL_PLANE) if uses_kind() else go_builds.EMBEDDED)


def make_environments() -> None:
    """Make the environments of the emulators, of a user's old libraries, and of taskbroker's published client.

    Without a fitting Python, CI fails; elsewhere that emulator's tests are skipped.
    """
    for recipe in (*EMULATORS.values(), MOTO):
        try:
            environment = environment_of(recipe)
        except NoPythonError as reason:
            if os.environ.get("CI"):
                raise ClusterError(f"{recipe.name} {reason}: install one, then run `make prepare` again") from reason
            say(f"LEFT OUT: {recipe.name} {reason}; its tests in tests/conformance are skipped")
        else:
            environments.make(environment)
    environments.make(USER_LIBRARIES)
    environments.make(SLIM_LIBRARIES)
    environments.make(PUBLISHED_CLIENT)


def install_peers() -> None:
    """Install the npm package with which the worker's queues are compared."""
    queues.install()


def build_images() -> None:
    """Every image of the catalogue.

    Raises ClusterError when this machine cannot have a cluster, or has too little room on its disk.
    """
    in_docker = uses_kind()
    if not in_docker:
        if (reason := requirements.why_not_embedded()) is not None:
            raise ClusterError(f"no images and no local cluster: no Docker engine answers `docker info`, and {reason}")
        with alone(paths.cluster() / "images.lock"):
            room.check(catalogue.everything())
            images.build_pause()
            retried("base image", images.build_base)
    for recipe in catalogue.everything():
        build_image(recipe)


def build_image(recipe: Recipe) -> None:
    """Build one image unless it is there."""
    with alone(paths.cluster() / "images.lock"):
        retried(f"image {recipe.tag}", lambda: docker.build(recipe) if uses_kind() else images.build(recipe))


def make_peers_of_benchmarks() -> None:
    """Make the environments of the benchmarks' peers."""
    for environment in worker_peers.EVERYTHING:
        environments.make(environment)


def get_kafka() -> None:
    """Get Apache Kafka and a Java for it."""
    apt.install(packages.JAVA)
    kafka.install()


#: By name; `bench` and `kafka` are prepared only when they are named.
PARTS: dict[str, Callable[[], None]] = {
    "packages": install_packages,
    "binaries": build_binaries,
    "environments": make_environments,
    "peers": install_peers,
    "images": build_images,
    "bench": make_peers_of_benchmarks,
    "kafka": get_kafka,
}
USUAL = tuple(name for name in PARTS if name not in {"bench", "kafka"})
