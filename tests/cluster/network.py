"""The cluster's network: one bridge for the pods, on which the host has the address `HOST`."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.shell import run, succeeds

BRIDGE = "activitypool0"  # an interface name holds 15 characters
NETWORK = "activitypool"
POD_CIDR = "10.213.0.0/20"  # not 10.88 (podman), 10.244 (kind, flannel) or 172.17 (docker)
HOST = "10.213.0.1"
PREFIX_LENGTH = 20
SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
API_SERVER = f"https://{HOST}:6443"
CHAIN = "CNI-ACTIVITYPOOL"  # `down` removes chains of this prefix


def up() -> None:
    """Make the bridge with its address, the route to Services, forwarding, and masquerading of pods. Repeatable."""
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "address", "replace", f"{HOST}/{PREFIX_LENGTH}", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])
    # Without the route a machine that has no default route could not reach a ClusterIP.
    run(["ip", "route", "replace", SERVICE_CIDR, "dev", BRIDGE, "src", HOST])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _masquerade()


def _masquerade() -> None:
    # One rule for all pods, not the bridge plugin's two chains per pod.
    if not succeeds(["iptables", "-t", "nat", "-n", "-L", CHAIN]):
        run(["iptables", "-w", "-t", "nat", "-N", CHAIN])
        run(["iptables", "-w", "-t", "nat", "-A", CHAIN, "!", "-d", POD_CIDR, "-j", "MASQUERADE"])
    jump = ["POSTROUTING", "-s", POD_CIDR, "-j", CHAIN]
    if not succeeds(["iptables", "-w", "-t", "nat", "-C", *jump]):
        run(["iptables", "-w", "-t", "nat", "-A", *jump])


def nameservers() -> list[str]:
    """The machine's resolvers, from /etc/resolv.conf."""
    lines = Path("/etc/resolv.conf").read_text().splitlines() if Path("/etc/resolv.conf").exists() else []
    return [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]


def cni_plugins() -> str:
    """The folder of the CNI plugins: Debian's."""
    return "/usr/lib/cni"
