"""The tests of the CRD use an API server of their own, each in its own namespace."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.integration.crd.arrange import Kubectl
from tests.servers.control_plane import control_plane, kubeconfig


@contextmanager
def fresh_namespace(kubectl: Kubectl) -> Iterator[Kubectl]:
    """Yield kubectl in a new namespace, which is deleted afterwards."""
    namespace = f"crd-{uuid.uuid4().hex[:8]}"
    made = kubectl("create", "namespace", namespace)
    assert made.ok, made.err
    try:
        yield replace(kubectl, namespace=namespace)
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def cluster_kubectl() -> Iterator[Kubectl]:
    """Yield kubectl for an API server with this tree's CRD, in a namespace for dry runs only."""
    with control_plane({"token-of-test": "test"}) as plane:
        config = kubeconfig(plane.folder / "kubeconfig", plane.url, "test", "token-of-test", plane.ca_file)
        plane.wait_ready()
        with fresh_namespace(Kubectl(plane, config)) as kubectl:
            kubectl.install_crd()
            yield kubectl


@pytest.fixture
def kubectl(cluster_kubectl: Kubectl) -> Iterator[Kubectl]:
    """Yield kubectl in a namespace for one test, which may store pools."""
    with fresh_namespace(cluster_kubectl) as kubectl:
        yield kubectl
