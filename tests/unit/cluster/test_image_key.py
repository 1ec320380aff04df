"""Names of images as Kubernetes reads them."""

from __future__ import annotations

import pytest

from tests.cluster.image_key import copied, full_name


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("activitypool/worker:dev", "docker.io/activitypool/worker:dev"),
        ("worker:1", "docker.io/library/worker:1"),
        ("localhost/worker:1", "localhost/worker:1"),
        ("images.example:5000/a/b:2", "images.example:5000/a/b:2"),
    ],
)
def test_a_tag_is_named_as_a_kubelet_names_it(tag: str, name: str) -> None:
    """Otherwise the kubelet would not find what was loaded."""
    assert full_name(tag) == name


@pytest.mark.parametrize("tag", ["worker", "worker:latest", "images.example:5000/worker"])
def test_a_tag_without_a_fixed_version_is_refused(tag: str) -> None:
    """A kubelet would try to pull it."""
    with pytest.raises(ValueError, match="name a version other than latest"):
        full_name(tag)


def test_a_build_depends_on_what_its_dockerfile_copies() -> None:
    """Flags and other stages are not part of the context."""
    dockerfile = "FROM a AS b\nCOPY --chown=1:1 one two/ /to/\nADD three \\\n  /to\nFROM c\nCOPY --from=b /to /to\n"

    assert copied(dockerfile) == ["one", "two/", "three"]


@pytest.mark.parametrize("copy", ["COPY *.lock /to/", "COPY $WHAT /to/", 'COPY ["one", "/to/"]'])
def test_a_build_whose_sources_are_not_plain_paths_depends_on_its_whole_context(copy: str) -> None:
    """Rather too often built than once too seldom."""
    assert copied(f"FROM a\n{copy}\n") == ["."]
