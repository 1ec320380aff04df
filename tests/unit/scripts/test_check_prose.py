"""The measure of prose counts idioms in docstrings, comments and pages, and finds what is too long."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts import check_prose, prose

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into a repository of its own, which the checks read."""

    def add(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
        _git(tmp_path, "add", "-A")

    _git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["check_prose"])
    return add


def _git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("idiom", prose.IDIOMS)
def test_each_idiom_is_found_in_docstrings_comments_and_pages(idiom: str) -> None:
    sentence = f"The pod {idiom} is ready."
    in_python = [*prose.of_python(f'"""{sentence}"""\n'), *prose.of_python(f"# {sentence}\nx = 1\n")]

    assert [one.idiom for one in [*in_python, *prose.of_markdown(sentence)]] == [idiom] * 3


def test_code_and_quotations_are_no_prose() -> None:
    text = 'The page says `nobody`, "nobody" and [this](nobody.md).\n\n```sh\necho nobody\n```\n'

    assert [one.idiom for one in prose.of_markdown(text)] == [""]


def test_share_above_the_limit_fails(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("docs/a.md", "A worker is a pod. " * 199 + "It is a pod of whom we read.\n")

    assert check_prose.main() == 0

    write("docs/b.md", "A pod that nobody sees.\n")

    assert check_prose.main() == 1
    assert "docs/b.md:1: nobody: A pod that nobody sees." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n" * 501, "501 lines; a module has at most 500"),
        ("class Large:\n" + "    x = 1\n" * 250, "Large has 251 lines; the limit is 250"),
        ("def large():\n" + "    x = 1\n" * 60, "large has 61 lines; the limit is 60"),
        (f"def test_{'a' * 66}():\n    pass\n", "a test's name has at most 70 characters"),
    ],
    ids=["module", "class", "function", "test name"],
)
def test_what_is_too_long_fails(write: Write, capsys: pytest.CaptureFixture[str], text: str, complaint: str) -> None:
    write("operator/a.py", text)

    assert check_prose.main() == 1
    assert complaint in capsys.readouterr().out


def test_long_commit_subject_fails(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("docs/a.md", "A worker is a pod.\n")
    _git(tmp_path, "commit", "--quiet", "-m", "x" * 73)
    monkeypatch.setattr(check_prose, "FIRST_COMMIT", _git(tmp_path, "rev-parse", "HEAD").strip())

    assert check_prose.main() == 0

    write("docs/a.md", "A worker is one pod.\n")
    _git(tmp_path, "commit", "--quiet", "-m", "y" * 73)

    assert check_prose.main() == 1
    assert "a subject has at most 72 characters" in capsys.readouterr().out
