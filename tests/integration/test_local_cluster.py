"""The local cluster has the features that the tests and the demo need, seen from outside and from a pod."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, ClusterError, probe, requirements, up

pytestmark = [
    pytest.mark.timeout(1800),  # the first run on a machine builds Kubernetes
    pytest.mark.skipif(
        not requirements.docker_answers() and requirements.why_not_embedded() is not None,
        reason=f"no local cluster here: {requirements.why_not_embedded()}",
    ),
]
NAMESPACE = "test-local-cluster"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """The running, healthy cluster; it is left running for the next suite."""
    return up()


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[str]:
    """A namespace in which a Deployment of two pods is Ready behind a Service."""
    with probe.namespace(cluster, NAMESPACE) as name:
        probe.deploy(cluster, name, replicas=2)
        yield name


def test_service_is_reached_by_its_name_from_another_pod(cluster: Cluster, web: str) -> None:
    """DNS short and full, ClusterIP and pod network work together."""
    probe.wait_served(
        cluster, web, f"http://{probe.NAME}/hostname", f"http://{probe.NAME}.{web}.svc.cluster.local/hostname"
    )


def test_unknown_service_name_is_refused_at_once(cluster: Cluster, web: str) -> None:
    """DNS answers NXDOMAIN instead of a time-out."""
    ask = """
import socket, time
began = time.monotonic()
try:
    socket.gethostbyname("nobody.default.svc.cluster.local")
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME, time.monotonic() - began < 2)
"""

    assert probe.in_pod(cluster, web, ask) == "True True"


def test_privileged_pod_is_refused_in_a_restricted_namespace(cluster: Cluster, web: str) -> None:
    """Pod Security is enforced, and its message names the rule."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged", "namespace": web},
        "spec": {"containers": [{"name": "c", "image": probe.IMAGE, "securityContext": {"privileged": True}}]},
    }

    with pytest.raises(ClusterError, match='violates PodSecurity "restricted:latest": privileged'):
        probe.apply(cluster, pod)


def test_audit_log_names_the_creator_of_an_object(cluster: Cluster, web: str) -> None:
    """Every request is logged with user, verb, object and answer before the caller gets the answer."""
    probe.kubectl(cluster, "--namespace", web, "create", "configmap", "audited")

    assert cluster.audit_log is not None
    entries = [json.loads(line) for line in cluster.audit_log.read_text().splitlines() if '"audited"' in line]
    creations = [entry for entry in entries if entry["verb"] == "create"]
    assert [
        (entry["objectRef"]["resource"], entry["objectRef"]["namespace"], entry["responseStatus"]["code"])
        for entry in creations
    ] == [("configmaps", web, 201)]
    assert creations[0]["user"]["username"].endswith("admin")


def test_logs_can_be_read(cluster: Cluster, web: str) -> None:
    """The API server reaches the kubelet, and the kubelet reads the container's log."""
    assert "GET /hostname" in probe.kubectl(cluster, "--namespace", web, "logs", f"deployment/{probe.NAME}")


def test_port_forward_works(cluster: Cluster, web: str) -> None:
    """`kubectl port-forward` gives this machine a pod's port."""
    argv = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}", "--namespace", web]
    argv += ["port-forward", f"service/{probe.NAME}", ":80"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            line = forwarding.stdout.readline()
            port = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert port is not None, line
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/hostname", timeout=10) as answer:
                assert answer.status == 200
        finally:
            forwarding.kill()


def test_pod_reaches_the_api_server_with_its_token(cluster: Cluster, web: str) -> None:
    """The Service `kubernetes`, the projected token and the CA certificate fit together."""
    ask = """
import json, os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
url = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}/apis/authentication.k8s.io/v1/selfsubjectreviews"
request = urllib.request.Request(url, data=b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}')
request.add_header("Authorization", "Bearer " + open(folder + "/token").read())
request.add_header("Content-Type", "application/json")
trust = ssl.create_default_context(cafile=folder + "/ca.crt")
print(json.load(urllib.request.urlopen(request, context=trust, timeout=5))["status"]["userInfo"]["username"])
"""

    assert probe.in_pod(cluster, web, ask) == f"system:serviceaccount:{web}:default"


def test_pod_reaches_this_machine_at_the_host_address(cluster: Cluster, web: str) -> None:
    """Pods can call a fake service that a test runs on this machine."""
    with http.server.HTTPServer((cluster.host_ip, 0), http.server.SimpleHTTPRequestHandler) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        url = f"http://{cluster.host_ip}:{server.server_port}/"
        ask = f"import urllib.request as u; print(u.urlopen(u.Request({url!r}, method='HEAD'), timeout=5).status)"
        try:
            assert probe.in_pod(cluster, web, ask) == "200"
        finally:
            server.timeout = 0
            answering.join(timeout=10)


def test_aggregated_api_can_trust_the_front_proxy(cluster: Cluster) -> None:
    """The request-header flags are published where extension API servers look for them."""
    published = probe.kubectl(
        *(cluster, "--namespace", "kube-system", "get", "configmap", "extension-apiserver-authentication"),
        "--output=jsonpath={.data}",
    )

    assert {"requestheader-client-ca-file", "requestheader-allowed-names"} <= set(json.loads(published))
