"""Only tests/prepare installs or builds, and no test, demo or benchmark imports it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]
INSTALLS = re.compile(
    r"\bapt(-get)? (update|install)\b|\bpip3? (install|sync)\b|\bnpm (ci|install)\b|\bdebootstrap\b|\bgo build\b"
    r"|\bbuildah bud\b|\bdocker build\b|-m venv\b|\buv venv\b"
)
#: The tools of INSTALLS. Only a module that names one of them is parsed, which takes most of the time.
TOOLS = re.compile(r"(?<![a-z])(apt|apt-get|pip3?|npm|debootstrap|go|buildah|docker|venv|uv)(?![a-z])")
#: The table of packages names debootstrap, which prepare installs.
TABLE = TESTS / "packages.py"


def words(node: ast.expr) -> str:
    """Return a constant, or the name that stands for one, as a word of a command line."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return "?"


def commands(source: str) -> Iterator[str]:
    """Yield the command lines that a module may run: its lists and calls, as words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple):
            yield " ".join(words(one) for one in node.elts)
        elif isinstance(node, ast.Call):
            function = words(node.func).lstrip("_")
            yield f"{function} {' '.join(words(one) for one in node.args)}"


def installs(file: Path) -> list[str]:
    source = file.read_text()
    return [one for one in commands(source) if INSTALLS.search(one)] if TOOLS.search(source) else []


def modules(*, in_prepare: bool) -> list[Path]:
    prepare_folders = (TESTS / "prepare", TESTS / "unit" / "prepare")
    return [file for file in TESTS.rglob("*.py") if any(one in file.parents for one in prepare_folders) == in_prepare]


def imports_prepare(file: Path) -> bool:
    pattern = r"^\s*(from|import) tests\.prepare\b|^\s*from tests import .*\bprepare\b"
    return re.search(pattern, file.read_text(), re.MULTILINE) is not None


def test_only_tests_prepare_installs_or_builds() -> None:
    found = {str(file.relative_to(TESTS)): installs(file) for file in modules(in_prepare=False) if file != TABLE}

    assert {file: lines for file, lines in found.items() if lines} == {}


def test_only_tests_prepare_imports_tests_prepare() -> None:
    assert [str(file.relative_to(TESTS)) for file in modules(in_prepare=False) if imports_prepare(file)] == []


def test_installs_of_tests_prepare_are_found() -> None:
    """The pattern matches every way to install that tests/prepare uses."""
    found = {file.name for file in (TESTS / "prepare").glob("*.py") if installs(file)}

    assert found == {"apt.py", "docker.py", "environments.py", "go.py", "images.py", "queues.py"}
