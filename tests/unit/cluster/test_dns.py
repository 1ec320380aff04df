"""CoreDNS's configuration with and without resolvers of the machine."""

from tests.cluster.dns import corefile


def test_names_outside_the_cluster_go_to_the_machines_resolvers() -> None:
    text = corefile(["192.0.2.1", "192.0.2.2"])

    assert text.startswith(".:10053 {")
    assert "forward . 192.0.2.1 192.0.2.2" in text
    assert "template" not in text


def test_without_resolvers_only_names_outside_the_cluster_are_refused() -> None:
    """In one block it would refuse the cluster's own names."""
    cluster, refusal = corefile([]).split("\n.:10053 {")

    assert "kubernetes cluster.local" in cluster
    assert cluster.startswith("cluster.local:10053 ")
    assert "rcode NXDOMAIN" in refusal
