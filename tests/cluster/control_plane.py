"""etcd, kube-apiserver, kube-controller-manager, kube-scheduler: their certificates and command lines."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import certificates, network, paths
from tests.cluster.certificates import Authority, Issued
from tests.cluster.processes import Daemon

ISSUER = "https://kubernetes.default.svc.cluster.local"
NODE = "activitypool-node"
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
"""
AUDIT_LOG_MEGABYTES = 1000  # so large that it does not rotate during tests


@dataclass(frozen=True)
class Identities:
    """The cluster's certificate authorities and certificates."""

    authority: Authority
    front_proxy: Authority
    api_server: Issued
    kubelet_client: Issued
    proxy_client: Issued
    kubelet: Issued
    token_key: Path


def identities() -> Identities:
    """Return the identities of this run directory, making them on the first call; writes every kubeconfig."""
    pki = paths.pki()
    cluster_authority = certificates.authority(pki, "ca")
    front_proxy = certificates.authority(pki, "front-proxy-ca")
    names = [
        *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
        *("localhost", "127.0.0.1", network.KUBERNETES_SERVICE, network.HOST),
    ]
    made = Identities(
        authority=cluster_authority,
        front_proxy=front_proxy,
        api_server=certificates.issue(cluster_authority, pki, "apiserver", user="kube-apiserver", addresses=names),
        kubelet_client=certificates.issue(
            cluster_authority, pki, "apiserver-kubelet", user="kube-apiserver-kubelet", groups=["system:masters"]
        ),
        proxy_client=certificates.issue(front_proxy, pki, "front-proxy", user="front-proxy-client"),
        kubelet=certificates.issue(
            cluster_authority,
            pki,
            "kubelet",
            user=f"system:node:{NODE}",
            groups=["system:nodes"],
            addresses=[NODE, network.HOST, "127.0.0.1"],
        ),
        token_key=certificates.signing_key(pki, "service-accounts"),
    )
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"):
        client = certificates.issue(cluster_authority, pki, name, user=f"system:{name}")
        _kubeconfig(pki / f"{name}.kubeconfig", cluster_authority, client)
    _kubeconfig(pki / "kubelet.kubeconfig", cluster_authority, made.kubelet)
    administrator = certificates.issue(cluster_authority, pki, "admin", user="admin", groups=["system:masters"])
    _kubeconfig(paths.kubeconfig(), cluster_authority, administrator)
    return made


def audit_log() -> Path:
    """The API server's audit log, one JSON document a line."""
    return paths.run() / "audit.log"


def etcd(binaries: Mapping[str, Path]) -> Daemon:
    """The data store, without fsync: a test cluster need not survive a power cut."""
    advertised = "http://127.0.0.1:2380"  # etcd checks the form, but a cluster of one member opens no connection to it
    argv = [
        str(binaries["etcd"]),
        "--name=activitypool",
        f"--data-dir={paths.run() / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={_etcd_socket()}",
        f"--advertise-client-urls={advertised}",
        f"--listen-peer-urls=unix://{paths.run() / 'etcd-peers.sock'}",
        f"--initial-advertise-peer-urls={advertised}",
        f"--initial-cluster=activitypool={advertised}",
        "--log-level=warn",
    ]
    return Daemon("etcd", tuple(argv))


def api_server(binaries: Mapping[str, Path], who: Identities) -> Daemon:
    """The API server, with audit log, aggregation and the admission that real clusters have."""
    policy = paths.run() / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY)
    argv = [
        str(binaries["kube-apiserver"]),
        f"--etcd-servers={_etcd_socket()}",
        # On the bridge only: pods and this machine reach it, other machines do not.
        f"--bind-address={network.HOST}",
        f"--advertise-address={network.HOST}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={network.SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={who.authority.certificate_file}",
        f"--tls-cert-file={who.api_server.certificate}",
        f"--tls-private-key-file={who.api_server.key}",
        f"--kubelet-certificate-authority={who.authority.certificate_file}",
        f"--kubelet-client-certificate={who.kubelet_client.certificate}",
        f"--kubelet-client-key={who.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={who.token_key}",
        f"--service-account-signing-key-file={who.token_key}",
        *_aggregation(who),
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit_log()}",
        f"--audit-log-maxsize={AUDIT_LOG_MEGABYTES}",
        "--profiling=false",
    ]
    return Daemon("kube-apiserver", tuple(argv))


def controller_manager(binaries: Mapping[str, Path], who: Identities) -> Daemon:
    """The controllers; no leader election, since there is one of them."""
    config = paths.pki() / "kube-controller-manager.kubeconfig"
    argv = [
        str(binaries["kube-controller-manager"]),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={who.token_key}",
        f"--root-ca-file={who.authority.certificate_file}",
        f"--cluster-signing-cert-file={who.authority.certificate_file}",
        f"--cluster-signing-key-file={who.authority.key_file}",
        f"--flex-volume-plugin-dir={paths.run() / 'volume-plugins'}",
        "--profiling=false",
    ]
    return Daemon("kube-controller-manager", tuple(argv))


def scheduler(binaries: Mapping[str, Path]) -> Daemon:
    """The scheduler; no leader election, since there is one of them."""
    config = paths.pki() / "kube-scheduler.kubeconfig"
    argv = [
        str(binaries["kube-scheduler"]),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--profiling=false",
    ]
    return Daemon("kube-scheduler", tuple(argv))


def is_ready(who: Identities) -> bool:
    """Whether the API server answers /readyz with ok; one try of at most 2 s."""
    trust = ssl.create_default_context(cafile=str(who.authority.certificate_file))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(f"{network.API_SERVER}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _etcd_socket() -> str:
    # A socket instead of a port: another etcd of this machine cannot occupy it or be mistaken for ours.
    return f"unix://{paths.run() / 'etcd.sock'}"


def _aggregation(who: Identities) -> list[str]:
    return [
        f"--requestheader-client-ca-file={who.front_proxy.certificate_file}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={who.proxy_client.certificate}",
        f"--proxy-client-key-file={who.proxy_client.key}",
        "--enable-aggregator-routing=true",
    ]


def _kubeconfig(path: Path, by: Authority, client: Issued) -> None:
    certificates.kubeconfig(path, server=network.API_SERVER, by=by, client=client)
