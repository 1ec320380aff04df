"""The tests of the CRD run against the API server of the local cluster, in namespaces of their own."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.cluster import current
from tests.integration.crd.arrange import CRD_NAME, Kubectl


@contextmanager
def fresh_namespace(kubectl: Kubectl) -> Iterator[Kubectl]:
    """Give kubectl in a new namespace, which is deleted afterwards."""
    namespace = f"crd-{uuid.uuid4().hex[:8]}"
    made = kubectl("create", "namespace", namespace)
    assert made.ok, made.err
    try:
        yield replace(kubectl, namespace=namespace)
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def cluster_kubectl() -> Iterator[Kubectl]:
    """Yield kubectl of the running cluster, with this tree's CRD, in a namespace in which nothing is ever stored."""
    cluster = current()
    assert cluster is not None, "no cluster runs; make cluster-up"
    with fresh_namespace(Kubectl(cluster.kubectl, cluster.kubeconfig)) as kubectl:
        there = kubectl("get", "crd", CRD_NAME).ok
        kubectl.install_crd()
        yield kubectl
        if not there:  # Helm refuses to install over a CRD that it does not own
            kubectl("delete", "crd", CRD_NAME)


@pytest.fixture
def kubectl(cluster_kubectl: Kubectl) -> Iterator[Kubectl]:
    """Yield kubectl in a namespace for one test, which may store pools."""
    with fresh_namespace(cluster_kubectl) as kubectl:
        yield kubectl
