"""Check the words in the names of both packages: packages, modules, classes, public functions and public methods.

Each word stands in docs/glossary.md, in words/plain.txt (ordinary English in its ordinary sense) or in words/terms.txt
(standard terms of the field, libraries and products); one form of a word is enough. A new word is thus a decision that
a reviewer sees. `python -m tests.scripts.check_names` prints `PATH:LINE: NAME: WORD ...` for each word that is in none
of them, and each word of the two lists and each exception that no name needs. It ends with status 1 if it printed any.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("operator/activity_operator", "worker_image/activity_worker")
GLOSSARY = ROOT / "docs/glossary.md"
PLAIN, TERMS = Path(__file__).with_name("words") / "plain.txt", Path(__file__).with_name("words") / "terms.txt"
FIX = "use a plain word, or explain this one in docs/glossary.md; ordinary words and terms go into tests/scripts/words"

#: (path, word) of names that still wait for a better word. An entry that no name needs is an error.
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
#: Endings of a word's forms, each with what stands there in the word itself.
_ENDINGS = (("ies", "y"), ("ied", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"))


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a module; `path` is relative to the repository."""

    path: str
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        """The words of the name, in small letters."""
        return [word.lower() for word in _WORD.findall(self.text)]


def names(path: str, source: str) -> Iterator[Name]:
    """Yield the names of one module: the module's own (for `__init__.py` the package's), then those it defines."""
    file = Path(path)
    yield Name(path, 1, file.parent.name if file.stem == "__init__" else file.stem)
    yield from _defined(path, ast.parse(source).body)


def _defined(path: str, body: Iterable[ast.stmt]) -> Iterator[Name]:
    """Yield public classes with their methods, and public functions; functions within functions are private."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _defined(path, [*node.body, *node.orelse])
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        yield Name(path, node.lineno, node.name)
        if isinstance(node, ast.ClassDef):
            yield from _defined(path, node.body)


def base_forms(word: str) -> Iterator[str]:
    """Yield the word, and the words that it may be a form of: "stopped" yields "stop", "retries" yields "retry"."""
    yield word
    for ending, instead in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 1:
            yield stem + instead
            if not instead and stem[-1] == stem[-2]:
                yield stem[:-1]


def glossary_words(markdown: str) -> set[str]:
    """Return the words in the first column of the glossary's table."""
    header_and_rule = 2
    rows = re.findall(r"^\|([^|]+)\|", markdown, re.MULTILINE)
    return {word.lower() for row in rows[header_and_rule:] for word in re.findall(r"[A-Za-z]+", row)}


def complaints(
    found: Iterable[Name],
    glossary: Collection[str],
    lists: Mapping[str, Collection[str]],
    exceptions: Collection[tuple[str, str]] = EXCEPTIONS,
) -> list[str]:
    """Return a line for each unknown word, each listed word that no name has, and each exception without its word."""
    lines: list[str] = []
    used: set[str] = set()
    excepted: set[tuple[str, str]] = set()
    listed = set().union(*lists.values())
    for name in found:
        for word in name.words:
            forms = set(base_forms(word))
            used |= forms
            if forms & listed or forms & set(glossary):
                continue
            if (name.path, word) in exceptions:
                excepted.add((name.path, word))
            else:
                lines.append(f"{name.path}:{name.line}: {name.text}: {word!r} is unknown: {FIX}")
    for file, words in lists.items():
        lines += [f"{file}: {word!r} is in no name: take it out" for word in sorted(set(words) - used)]
        lines += [f"{file}: {word!r} is in the glossary: take it out" for word in sorted(set(words) & set(glossary))]
    stale = sorted(set(exceptions) - excepted)
    lines += [f"{path}: EXCEPTIONS names {word!r}, and no unknown word needs it: take it out" for path, word in stale]
    return lines


def main() -> int:
    """Print the complaints about both packages; 1 if there are any."""
    listing = subprocess.run(
        ["git", "ls-files", *(f"{package}/*.py" for package in PACKAGES)], cwd=ROOT, capture_output=True, check=True
    )
    files = [path for path in listing.stdout.decode().splitlines() if (ROOT / path).exists()]
    found = [name for path in files for name in names(path, (ROOT / path).read_text(encoding="utf-8"))]
    lists = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").split() for file in (PLAIN, TERMS)}
    lines = complaints(found, glossary_words(GLOSSARY.read_text(encoding="utf-8")), lists)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
