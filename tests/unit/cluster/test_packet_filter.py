"""What of the packet filter is ours."""

from __future__ import annotations

from tests.cluster.packet_filter import is_empty, without_our_chains

FOREIGN = [
    "*nat",
    ":PREROUTING ACCEPT [3:180]",
    ":DOCKER - [0:0]",
    "[1:60] -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
    "COMMIT",
]
OURS = [
    ":KUBE-SERVICES - [0:0]",
    ":CNI-ACTIVITYPOOL - [0:0]",
    '[0:0] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    "[0:0] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-NPX46M4PTMTKRN6Y",
]


def test_our_chains_and_the_rules_that_name_them_are_left_out() -> None:
    """Others' chains and rules stay, in their order."""
    mixed = [*FOREIGN[:3], *OURS, *FOREIGN[3:]]

    assert without_our_chains(mixed) == FOREIGN


def test_rules_without_ours_are_untouched() -> None:
    """Nothing of ours, nothing to do."""
    assert without_our_chains(FOREIGN) == FOREIGN


def test_a_table_with_accepting_built_in_chains_only_is_empty() -> None:
    """Such a table does nothing, so it may be deleted."""
    assert is_empty("filter", ["*filter", ":INPUT ACCEPT [9:800]", "COMMIT", *FOREIGN])


def test_a_table_with_a_rule_a_chain_or_a_policy_is_not_empty() -> None:
    """Each of the three is somebody's."""
    assert not is_empty("nat", FOREIGN)
    assert not is_empty("nat", ["*nat", ":DOCKER - [0:0]", "COMMIT"])
    assert not is_empty("filter", ["*filter", ":FORWARD DROP [0:0]", "COMMIT"])
