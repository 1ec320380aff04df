"""Measure how the repository reads, and fail above the limits: idioms, test names, sizes, commit subjects.

`python -m tests.scripts.check_prose` prints a row for each area, and below it what is above its limit;
`--list` prints every sentence with an idiom (PATH:LINE: idiom: sentence).
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.scripts import prose
from tests.scripts.prose import Sentence

ROOT = Path(__file__).parents[2]
#: The largest share of sentences that may contain an idiom.
IDIOM_SHARE = 0.005
NAME_LENGTH, SUBJECT_LENGTH = 70, 72
#: Lines of a module, a class, a function.
MODULE_LINES, CLASS_LINES, FUNCTION_LINES = 500, 250, 60
#: Classes and functions above the limit, with the lines that they may have: they may shrink, and must not grow.
LARGER: dict[str, int] = {}
#: Commits before this one had other rules.
FIRST_COMMIT = "b6b1d9931162fbe1aef619136f34771abc882524"
AREAS = ("operator", "worker_image", "tests", "docs", "examples", ".github", "")


@dataclass(frozen=True, slots=True)
class Area:
    """The files below a top-level folder ("" are the pages of the top level) and the sentences in them."""

    name: str
    sentences: tuple[tuple[str, Sentence], ...]

    @property
    def idioms(self) -> list[tuple[str, Sentence]]:
        """The sentences with an idiom, each with its file."""
        return [(path, sentence) for path, sentence in self.sentences if sentence.idiom]

    @property
    def share(self) -> float:
        """The part of the sentences that have an idiom."""
        return len(self.idioms) / max(len(self.sentences), 1)


def areas() -> list[Area]:
    """Return the areas with the sentences of every Python module and every page that git knows."""
    files = [name for name in _git("ls-files", "*.py", "*.md").splitlines() if (ROOT / name).exists()]
    return [Area(area, tuple(_sentences(files, area))) for area in AREAS]


def too_long() -> Iterator[str]:
    """Yield a line for each test name, module, class and function above its limit."""
    for name in _git("ls-files", "*.py").splitlines():
        source = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).exists() else ""
        if (lines := source.count("\n")) > MODULE_LINES:
            yield f"{name}: {lines} lines; a module has at most {MODULE_LINES}"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                yield from _above(name, node, CLASS_LINES)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _above(name, node, FUNCTION_LINES)
                if node.name.startswith("test_") and len(node.name) > NAME_LENGTH:
                    yield f"{name}:{node.lineno}: {node.name}: a test's name has at most {NAME_LENGTH} characters"


def long_subjects() -> Iterator[str]:
    """Yield a line for each commit since FIRST_COMMIT whose subject is too long; none where the history is cut off."""
    known = subprocess.run(["git", "cat-file", "-e", FIRST_COMMIT], cwd=ROOT, capture_output=True, check=False)
    if known.returncode == 0:
        for line in _git("log", "--format=%h %s", f"{FIRST_COMMIT}..HEAD").splitlines():
            commit, _, subject = line.partition(" ")
            if len(subject) > SUBJECT_LENGTH:
                yield f"{commit}: {subject!r}: a subject has at most {SUBJECT_LENGTH} characters"


def _above(name: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, limit: int) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    known = LARGER.get(f"{name}:{node.name}")
    if lines > (known or limit):
        yield f"{name}:{node.lineno}: {node.name} has {lines} lines; the limit is {known or limit}"
    if known is not None and lines <= limit:
        yield f"{name}:{node.lineno}: {node.name} has {lines} lines: take it out of LARGER"


def _sentences(files: list[str], area: str) -> Iterator[tuple[str, Sentence]]:
    for name in files:
        if (name.partition("/")[0] if "/" in name else "") == area:
            text = (ROOT / name).read_text(encoding="utf-8")
            found = prose.of_markdown(text) if name.endswith(".md") else prose.of_python(text)
            yield from ((name, sentence) for sentence in found)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Print the measure; 1 if anything is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.scripts.check_prose", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every sentence with an idiom")
    asked = parser.parse_args()
    found = areas()
    for area in found:
        name = area.name or "top level"
        print(f"{name:14}{len(area.sentences):>6} sentences{area.share:>8.2%} with an idiom")
        if asked.list or area.share > IDIOM_SHARE:
            for path, sentence in area.idioms:
                print(f"{path}:{sentence.line}: {sentence.idiom}: {sentence.text}")
    wrong = [*too_long(), *long_subjects()]
    print("\n".join(wrong))
    return 1 if wrong or any(area.share > IDIOM_SHARE for area in found) else 0


if __name__ == "__main__":
    sys.exit(main())
