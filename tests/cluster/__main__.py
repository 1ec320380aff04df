"""The local cluster on the command line: `python -m tests.cluster --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster import build_image, current, down, load_image, up
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


def _image(chosen: argparse.Namespace) -> None:
    image = build_image(chosen.dockerfile, chosen.context, chosen.tag, build_args=dict(chosen.build_arg))
    if read_record() is not None:
        load_image(image)


def _emulator(chosen: argparse.Namespace) -> None:
    from tests.cluster.emulators import ensure_emulator

    emulator = ensure_emulator(up(), chosen.name)
    print(f"in the cluster: {emulator.in_cluster_url}\non this machine: {emulator.host_url}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


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
    image = commands.add_parser(
        "image", aliases=["load-image"], help="build a Dockerfile and load it into the cluster if one runs"
    )
    image.add_argument("tag", help="such as activitypool/worker:dev; a version other than latest")
    image.add_argument("dockerfile", type=Path)
    image.add_argument("context", type=Path)
    image.add_argument("--build-arg", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    image.set_defaults(action=_image)
    emulator = commands.add_parser("emulator", help="start a Step Functions emulator in the cluster, and say its URLs")
    emulator.add_argument("name", choices=["localemu", "ministack"])
    emulator.set_defaults(action=_emulator)
    return parser


def main() -> int:
    """Run one command; 0 when it did what it says, 1 with the reason when not."""
    chosen = _parser().parse_args()
    try:
        chosen.action(chosen)
    except (ClusterError, ValueError) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
