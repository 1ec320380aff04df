"""The only node: containerd, kubelet and kube-proxy with their configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import cgroups, network, paths
from tests.cluster.control_plane import NODE, Identities
from tests.cluster.processes import Daemon
from tests.cluster.shell import run

MAX_PODS = 250
PAUSE_IMAGE = "docker.io/activitypool/pause:1"
NAMESPACE = "k8s.io"  # where the kubelet's images and containers live inside containerd
CONTAINERD = """\
version = 2
root = "{root}"
state = "{run}/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  netns_mounts_under_state_dir = true
  max_concurrent_downloads = 1
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{run}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{run}/runc"
        SystemdCgroup = false
"""


def containerd() -> Daemon:
    """The container runtime, with root, state and socket of its own."""
    run_folder = paths.run()
    config = run_folder / "containerd.toml"
    config.write_text(
        CONTAINERD.format(
            root=paths.container_store(),
            run=run_folder,
            socket=paths.containerd_socket(),
            pause=PAUSE_IMAGE,
            cni_plugins=network.cni_plugins(),
        )
    )
    _write_json(run_folder / "cni" / "10-activitypool.conflist", _cni())
    return Daemon("containerd", ("containerd", "--config", str(config)))


def kubelet(binaries: Mapping[str, Path], who: Identities) -> Daemon:
    """The kubelet, in our cgroup and our folders."""
    run_folder = paths.run()
    resolv = run_folder / "resolv.conf"
    # Without the machine's search domains, which would be appended to every pod's.
    resolv.write_text("".join(f"nameserver {server}\n" for server in network.nameservers()))
    config = _write_json(run_folder / "kubelet.json", _kubelet_configuration(who, resolv))
    argv = [
        str(binaries["kubelet"]),
        f"--config={config}",
        f"--kubeconfig={paths.pki() / 'kubelet.kubeconfig'}",
        f"--hostname-override={NODE}",
        f"--node-ip={network.HOST}",
        f"--root-dir={run_folder / 'kubelet'}",
        f"--cert-dir={paths.pki()}",
    ]
    return Daemon("kubelet", tuple(argv))


def kube_proxy(binaries: Mapping[str, Path]) -> Daemon:
    """Services by iptables; pods, and this machine, reach ClusterIPs."""
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": network.POD_CIDR,
        "hostnameOverride": NODE,
        "bindAddress": network.HOST,
        "healthzBindAddress": f"{network.HOST}:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "nodePortAddresses": [network.POD_CIDR],
        "clientConnection": {"kubeconfig": str(paths.pki() / "kube-proxy.kubeconfig")},
        # Zero leaves the machine's connection tracking as it is.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"localhostNodePorts": False, "minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }
    config = _write_json(paths.run() / "kube-proxy.json", configuration)
    return Daemon("kube-proxy", (str(binaries["kube-proxy"]), f"--config={config}"))


def ctr(*words: str | Path, timeout_seconds: float | None = 120) -> str:
    """Run containerd's client on our containerd, in the kubelet's namespace; returns its output."""
    return run(
        ["ctr", "--address", paths.containerd_socket(), "--namespace", NAMESPACE, *words],
        timeout_seconds=timeout_seconds,
    )


def _kubelet_configuration(who: Identities, resolv: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.HOST,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(who.authority.certificate_file)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(who.kubelet.certificate),
        "tlsPrivateKeyFile": str(who.kubelet.key),
        "clusterDNS": [network.DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolv),
        "containerRuntimeEndpoint": f"unix://{paths.containerd_socket()}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.NAME}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Tolerates a machine that forbids some kernel settings or has no /dev/kmsg.
        "featureGates": {"KubeletInUserNamespace": True},
        "maxPods": MAX_PODS,
        "podLogsDir": str(paths.run() / "pod-logs"),
        "volumePluginDir": str(paths.run() / "volume-plugins"),
        # Images are imported, not pulled, so an image that was deleted for room on the disk could not be restored: pods
        # of it would never start. `make prepare` asks for the room instead.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
        "logging": {"verbosity": 1},
    }


def _cni() -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": network.BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(paths.run() / "cni-addresses"),
            "ranges": [[{"subnet": network.POD_CIDR, "gateway": network.HOST}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "0.4.0", "name": network.NETWORK, "plugins": [bridge]}


def _write_json(path: Path, document: Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    return path
