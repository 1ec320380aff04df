"""Cluster DNS: CoreDNS as a daemon of this machine, which pods reach as the Service kube-dns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster import network, paths
from tests.cluster.processes import Daemon

PORT = 10053
COREFILE = """\
{zones} {{
  bind {host}
  errors
  health 127.0.0.1:18080
  ready 127.0.0.1:18181
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    fallthrough in-addr.arpa ip6.arpa
    ttl 1
  }}
  {upstream}
  cache 5 {{
    disable denial cluster.local
    disable success cluster.local
  }}
}}
"""
CLUSTER_ZONES = ("cluster.local", "in-addr.arpa", "ip6.arpa")
# In a block of its own: within one block CoreDNS runs template before kubernetes, whatever their order here.
NO_UPSTREAM = """\
.:{port} {{
  bind {host}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
# A Service without a selector: its only endpoint is the daemon on the bridge's address.
MANIFEST = f"""\
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}
spec:
  clusterIP: {network.DNS_SERVICE}
  ports:
    - {{name: dns, port: 53, protocol: UDP, targetPort: {PORT}}}
    - {{name: dns-tcp, port: 53, protocol: TCP, targetPort: {PORT}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {{kubernetes.io/service-name: kube-dns, endpointslice.kubernetes.io/managed-by: activitypool}}
addressType: IPv4
endpoints:
  - addresses: [{network.HOST}]
    conditions: {{ready: true}}
ports:
  - {{name: dns, port: {PORT}, protocol: UDP}}
  - {{name: dns-tcp, port: {PORT}, protocol: TCP}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "system:coredns"}}
rules:
  - {{apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}}
  - {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "system:coredns"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}}]
"""


def coredns(binaries: Mapping[str, Path]) -> Daemon:
    """CoreDNS on the bridge's address; names outside the cluster go to the machine's resolvers."""
    path = paths.run() / "Corefile"
    # On the machine instead of in a pod: it can then use a resolver that listens on loopback only.
    path.write_text(corefile(network.nameservers()))
    return Daemon("coredns", (str(binaries["coredns"]), "-conf", str(path)))


def corefile(resolvers: Sequence[str]) -> str:
    """CoreDNS's configuration. Without resolvers no name outside the cluster exists."""
    where = {"port": PORT, "host": network.HOST}
    zones = ["."] if resolvers else CLUSTER_ZONES
    block = COREFILE.format(
        zones=" ".join(f"{zone}:{PORT}" for zone in zones),
        kubeconfig=paths.pki() / "coredns.kubeconfig",
        upstream=f"forward . {' '.join(resolvers)}" if resolvers else "",
        **where,
    )
    return block if resolvers else block + NO_UPSTREAM.format(**where)
