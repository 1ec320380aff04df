"""The local cluster on the command line: `python -m tests.cluster --help`."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import current, down, up
from tests.cluster.cluster import read_record
from tests.cluster.shell import ClusterError


def _up(_: argparse.Namespace) -> None:
    cluster = up()
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _down(_: argparse.Namespace) -> None:
    down()


def _status(_: argparse.Namespace) -> None:
    cluster = current()
    if cluster is None:
        raise ClusterError("down" if read_record() is None else "not well: `python -m tests.cluster up` repairs it")
    for key, value in vars(cluster).items():
        print(f"{key}: {value}")


def _kubeconfig(_: argparse.Namespace) -> None:
    noted = read_record()
    if noted is None:
        raise ClusterError("no cluster runs: `python -m tests.cluster up` first")
    print(noted.kubeconfig)


def _emulator(chosen: argparse.Namespace) -> None:
    from tests.cluster.emulators import ensure_emulator

    emulator = ensure_emulator(up(), chosen.name)
    print(f"in the cluster: {emulator.in_cluster_url}\non this machine: {emulator.host_url}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real local Kubernetes cluster.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, action, about in (
        ("up", _up, "boot it, repair it, or verify that it is well"),
        ("down", _down, "stop it and leave the machine as it was"),
        ("status", _status, "say what runs; status 1 when nothing does"),
        ("kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig"),
    ):
        commands.add_parser(name, help=about).set_defaults(action=action)
    emulator = commands.add_parser("emulator", help="start a Step Functions emulator in the cluster, and say its URLs")
    emulator.add_argument("name", choices=["localemu", "ministack"])
    emulator.set_defaults(action=_emulator)
    return parser


def main() -> int:
    """Run one command; return 0 when it succeeded, 1 with the reason when it failed."""
    chosen = _parser().parse_args()
    try:
        chosen.action(chosen)
    except (ClusterError, ValueError) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
