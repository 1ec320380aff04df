"""`module:attribute` becomes what a worker runs, or an error that says where to look."""

import sys
from pathlib import Path

import pytest

from activity_worker import Activities
from activity_worker.handlers.loader import HandlerLoadError, load_handler

APP = """
from activity_worker import Activities
app = Activities()
empty = Activities()

@app.activity
def resize(job): ...

def handle(event, context): ...
def wrong(a, b): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "user_app", raising=False)
    return tmp_path


def test_registry_and_function_are_found(folder: Path) -> None:
    (folder / "user_app.py").write_text(APP)

    registry = load_handler("user_app:app")

    assert isinstance(registry, Activities)
    assert [one.name for one in registry] == ["resize"]
    assert load_handler("user_app:handle").__name__ == "handle"


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (APP, "user_app:empty", "user_app:empty: the registry has no activity"),
        (APP, "user_app:wrong", "user_app:wrong: wrong: the parameter 'b'"),
        (APP, "user_app:other", "the module 'user_app' has no 'other'"),
        ("\nimport nothing_here\n", "user_app:handle", r"no module named 'nothing_here' \(.*user_app.py, line 2\)"),
        ("1 / 0\n", "user_app:handle", r"ZeroDivisionError: division by zero \(.*user_app.py, line 1\)"),
    ],
)
def test_what_cannot_be_loaded_says_where_and_why(folder: Path, text: str, name: str, words: str) -> None:
    (folder / "user_app.py").write_text(text)

    with pytest.raises(HandlerLoadError, match=words):
        load_handler(name)


def test_module_that_is_not_there_names_the_places() -> None:
    with pytest.raises(HandlerLoadError, match=r"no module named 'absent_app' in .+; is the file there"):
        load_handler("absent_app:handle")
