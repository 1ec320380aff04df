"""Names of images as Kubernetes reads them."""

from __future__ import annotations

import pytest

from tests.cluster.image_key import full_name


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
