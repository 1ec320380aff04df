"""`python -m tests.prepare [PART ...]` installs what the suites, the demo and the benchmarks need; see README.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tests import packages
from tests.cluster import find_image, load_image, paths
from tests.cluster.cluster import read_record
from tests.cluster.image_key import Recipe
from tests.cluster.locks import alone
from tests.cluster.progress import say
from tests.cluster.shell import ClusterError
from tests.prepare import parts


def main() -> int:
    """Prepare the named parts; return 0 when all is there, 1 with each reason when something is missing."""
    chosen = _parser().parse_args()
    if chosen.missing_packages:
        print(" ".join(packages.missing(parts.programs())))
        return 0
    try:
        with alone(paths.cache() / "prepare.lock"):
            if chosen.image:
                tag, dockerfile, context = chosen.image
                _image(Recipe(tag, Path(dockerfile), Path(context)))
            else:
                _prepare(chosen.part or parts.USUAL)
    except (ClusterError, ValueError) as failed:
        print(f"prepare: {failed}", file=sys.stderr)
        return 1
    say("everything is prepared")
    return 0


def _prepare(names: Iterable[str]) -> None:
    """Prepare these parts, also after one has failed. Raises ClusterError with every reason."""
    failures: list[str] = []
    for name, action in parts.PARTS.items():
        if name in names:
            try:
                action()
            except ClusterError as failed:
                say(f"{name}: FAILED")
                failures.append(f"{name}: {failed}")
    if failures:
        raise ClusterError("\n".join(failures))


def _image(recipe: Recipe) -> None:
    """Build one image, and load it into the cluster when one runs."""
    parts.build_image(recipe)
    if read_record() is not None:
        load_image(find_image(recipe))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.prepare", description=__doc__)
    known = ", ".join(parts.PARTS)
    parser.add_argument("part", nargs="*", type=_part, metavar="PART", help=f"of {known}; without one, all but bench")
    parser.add_argument("--missing-packages", action="store_true", help="install nothing; print the missing packages")
    words = ("TAG", "DOCKERFILE", "CONTEXT")
    parser.add_argument("--image", nargs=3, metavar=words, help="only build this image, and load it into the cluster")
    return parser


def _part(name: str) -> str:
    if name not in parts.PARTS:
        raise argparse.ArgumentTypeError(f"no such part; there are {', '.join(parts.PARTS)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
