"""Cleans up the packet filter: removes our chains, and the tables that had only our rules.

The rules are not restored from a copy, so that changes by others are kept.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable

from tests.cluster.shell import run

FAMILIES = {"iptables": "ip", "ip6tables": "ip6"}
OUR_CHAIN = re.compile(r"\b(?:KUBE|CNI)-[A-Za-z0-9-]+")


def tables() -> dict[str, list[str]]:
    """The tables that exist, by command (`iptables`, `ip6tables`)."""
    return {command: _tables(_saved(command)) for command in FAMILIES}


def remove_ours(before: dict[str, list[str]]) -> None:
    """Remove the chains KUBE-* and CNI-* with their rules, and the now empty tables that were not there `before`."""
    for command, family in FAMILIES.items():
        now = _saved(command)
        kept = without_our_chains(now)
        if kept != now:
            run([f"{command}-restore", "-c"], stdin="\n".join(kept) + "\n")
        for table in _tables(kept):
            if table not in before.get(command, []) and is_empty(table, kept):
                _delete_table(family, table)


def without_our_chains(rules: Iterable[str]) -> list[str]:
    """The lines of an `iptables-save` without our chains and without the rules that name them."""
    return [line for line in rules if line.startswith("#") or not OUR_CHAIN.search(line)]


def is_empty(table: str, rules: Iterable[str]) -> bool:
    """Whether the table in an `iptables-save` has no rule, no chain but the built-in ones, and accepts everything."""
    inside = False
    for line in rules:
        if line.startswith("*"):
            inside = line == f"*{table}"
        elif inside and line.startswith(":"):
            if line.split()[1] != "ACCEPT":
                return False
        elif inside and line != "COMMIT" and not line.startswith("#"):
            return False
    return True


def _saved(command: str) -> list[str]:
    return run([f"{command}-save", "-c"]).splitlines() if shutil.which(f"{command}-save") else []


def _tables(rules: Iterable[str]) -> list[str]:
    return [line[1:] for line in rules if line.startswith("*")]


def _delete_table(family: str, table: str) -> None:
    # With the older back-end a table is a kernel module's; an empty one has no effect and stays.
    if "nf_tables" in run(["iptables", "--version"]):
        run(["nft", "delete", "table", family, table])
