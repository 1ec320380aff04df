"""The tasks of the published client's app for our worker: the same functions, with our decorators."""

from pathlib import Path
from typing import Any

from activity_worker import Activities, Retry, TaskNamespace

app = Activities()
shop = TaskNamespace(app, "shop")


def write(path: str, text: str) -> None:
    """Append a line."""
    with Path(path).open("a") as file:
        file.write(text + "\n")


@shop.register(name="note")
def note(path: str, *words: Any, **more: Any) -> None:
    """Note the arguments, or the length of a long one."""
    if len(words) == 1 and isinstance(words[0], str):
        write(path, str(len(words[0])))
    else:
        write(path, " ".join(map(repr, (*words, *sorted(more.items())))))


@shop.register(name="fail", retry=Retry(attempts=2, on=(LookupError,)))
def fail(path: str) -> None:
    """Fail, with a second attempt."""
    write(path, "fail")
    raise LookupError("again")
