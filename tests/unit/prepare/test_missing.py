"""A missing program, package, binary or image is an error that names it, and `make prepare`."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests import packages
from tests.bench import worker_peers
from tests.cluster import ClusterError, MissingError, go_builds, image_key, images
from tests.cluster.image_key import Recipe
from tests.conformance.emulators import EMULATORS, environment_of
from tests.environments import Environment
from tests.packages import Program
from tests.peers.queues import environment as queues
from tests.prepare import apt

REMEDY = "run `make prepare`"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, with an empty PATH."""
    monkeypatch.setenv("ACTIVITYPOOL_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Return the recipe of an image with one file."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY one /\n")
    (context / "one").write_text("1")
    return Recipe("example:1", context / "Dockerfile", context)


def test_missing_program_names_its_package() -> None:
    with pytest.raises(MissingError, match=r"redis-server is not installed \(Debian package redis-server\): run `make"):
        packages.find("redis-server")


def test_missing_packages_are_named_once_each() -> None:
    programs = [Program("one", "both"), Program("two", "both"), Program("three", "another")]

    with pytest.raises(MissingError, match=f"not installed: another, both: {REMEDY}"):
        packages.check(programs)


def test_missing_binary_is_named() -> None:
    with pytest.raises(MissingError, match=f": etcd, kubectl: {REMEDY}"):
        go_builds.find(["etcd", "kubectl"])


def test_missing_environment_is_named() -> None:
    with pytest.raises(MissingError, match=f"environment of ministack is not made.*{REMEDY}"):
        environment_of(EMULATORS["ministack"]).find()


def test_missing_environment_of_a_benchmark_names_its_own_command() -> None:
    with pytest.raises(MissingError, match=r"worker_peers is not made.*: run `python -m tests.prepare bench`"):
        worker_peers.interpreter()


def test_incomplete_environment_is_missing(cache: Path) -> None:
    lock = cache / "one.lock"
    lock.write_text("")
    environment = Environment("one", lock, sys.executable)
    environment.home.mkdir(parents=True)

    with pytest.raises(MissingError):
        environment.find()
    environment.ready.touch()
    assert environment.find() == environment.home


def test_missing_npm_packages_are_named() -> None:
    with pytest.raises(MissingError, match=f"tests/peers/queues are not installed.*{REMEDY}"):
        queues.modules()


def test_image_that_is_not_built_is_named(recipe: Recipe) -> None:
    with pytest.raises(MissingError, match=f"image example:1 is not built from the files as they are now: {REMEDY}"):
        images.find(recipe)


def test_image_whose_files_changed_is_missing(recipe: Recipe) -> None:
    archive = images.archive_of(recipe)
    archive.touch()
    assert images.find(recipe) == archive

    (recipe.context / "one").write_text("2")

    with pytest.raises(MissingError):
        images.find(recipe)


def test_file_that_an_image_does_not_copy_keeps_its_key(recipe: Recipe) -> None:
    before = images.key(recipe)

    (recipe.context / "another").write_text("2")

    assert images.key(recipe) == before


def test_last_builds_of_an_image_are_kept_and_older_ones_returned(recipe: Recipe) -> None:
    """Working trees that share a cache must not delete each other's builds."""
    dropped = [image_key.note(recipe, key) for key in ("a", "b", "a", "c", "d")]

    assert dropped == [[], [], [], ["b"], ["a"]]
    assert image_key.known(recipe) == "d"


def test_build_that_a_test_has_used_lately_stays(recipe: Recipe) -> None:
    """A third build must not take the images of a run in another working tree."""
    archive = images.archive_of(recipe)
    archive.touch()
    keys = [images.find(recipe).stem, "b", "c"]
    assert [image_key.note(recipe, key, images.in_use) for key in keys] == [[], [], []]

    long_ago = time.time() - images.IN_USE_SECONDS
    os.utime(archive.with_suffix(".used"), (long_ago, long_ago))
    assert image_key.note(recipe, "d", images.in_use) == [archive.stem, "b"]

    images.delete(archive.stem)
    assert not list(archive.parent.glob(f"{archive.stem}.*"))


def test_error_without_apt_names_the_packages_to_install() -> None:
    with pytest.raises(ClusterError, match="no apt-get here: install what Debian calls nothing-here"):
        apt.install([Program("nothing-here", "nothing-here")])
