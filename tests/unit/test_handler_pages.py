"""The snippets of docs/handlers.md and docs/migrate.md run as the pages show them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from activity_worker.testing import ActivityEnvironment

DOCS = Path(__file__).parents[2] / "docs"
#: What each handler of migrate.md gets and returns, by the page's sections.
CALLS = {
    "From Lambda": ("handle", {"text": "abc"}, {"size": 3}),
    "From Celery": ("app", {"width": 4}, 8),
    "From Temporal activities": ("handle", {"count": 2}, 2),
    "From a loop over boto3": ("handle", {"key": "k"}, {"copied": "k"}),
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def clean_environment() -> dict[str, str]:
    bin_folder = str(Path(sys.executable).parent)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ACTIVITY_", "PYTHONPATH"))
    }
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return kept | keys | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The handler and the test of handlers.md as files."""
    handler, test, traced = blocks((DOCS / "handlers.md").read_text(encoding="utf-8"), "python")
    (tmp_path / "handler.py").write_text(handler)
    (tmp_path / "traced.py").write_text(traced)
    (tmp_path / "test_handler.py").write_text(test)
    return tmp_path


def test_the_tests_of_the_page_pass(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_first_commands_of_the_page_make_a_project(tmp_path: Path) -> None:
    first, *_ = blocks((DOCS / "handlers.md").read_text(encoding="utf-8"), "sh")
    installation, *commands = first.splitlines()
    assert installation == "pip install 'activitypool[worker]'"  # nothing is published yet

    done = subprocess.run(
        ["sh", "-ec", "\n".join([*commands, "ls"])],
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert {"handler.py", "test_handler.py", "Dockerfile", "pool.yaml"} <= set(done.stdout.split())


@pytest.mark.parametrize(("word", "found"), [("invoke '", '"words": 6'), ("dev", '"words": 2')])
def test_the_commands_of_the_page_print_an_output(folder: Path, word: str, found: str) -> None:
    shell = blocks((DOCS / "handlers.md").read_text(encoding="utf-8"), "sh")
    (command,) = (text for text in shell if f"activity-worker {word}" in text)

    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False
    )

    assert (done.returncode, found in done.stdout) == (0, True), done.stderr


def test_the_command_about_traces_shows_a_span(folder: Path) -> None:
    shell = blocks((DOCS / "handlers.md").read_text(encoding="utf-8"), "sh")
    (command,) = (text for text in shell if "OTEL_" in text)

    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False
    )

    assert (done.returncode, '"words": 2' in done.stdout) == (0, True), done.stderr
    assert '"messaging.destination.name": "dev"' in done.stderr


@pytest.mark.parametrize("section", CALLS)
async def test_the_handler_of_a_migration_runs(section: str, tmp_path: Path) -> None:
    page = (DOCS / "migrate.md").read_text(encoding="utf-8")
    (code,) = blocks(page.partition(f"## {section}\n")[2].partition("\n## ")[0], "python")
    names: dict[str, Any] = {"__name__": "handler"}
    exec(compile(code, str(tmp_path / "handler.py"), "exec"), names)
    name, value, output = CALLS[section]

    assert await ActivityEnvironment().run(names[name], value) == output


def test_every_section_of_the_migrations_has_a_handler_and_a_table() -> None:
    page = (DOCS / "migrate.md").read_text(encoding="utf-8")

    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(CALLS)
    assert len(re.findall(r"^\|---", page, re.MULTILINE)) == len(CALLS)
