"""`activity-worker init DIR`: writes a handler, its test, its image, its pool and its state machine."""

import re
import sys
from importlib import resources
from pathlib import Path
from string import Template

from activity_worker.config.reader import UsageError
from activity_worker.contract import EXIT_OK

#: A name of a Kubernetes object that Step Functions accepts as well.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")
_ENDING = ".template"


def run(folder: str, name: str | None) -> int:
    """Write the files and print what to do next. Raises `UsageError`."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{folder} is there already: give a folder that is new or empty")
    files = render(_checked_name(name or _name_of(target)))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (target / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}: {error.filename}") from None
    _say(f"{folder} has {', '.join(files)}.\n\nNext, in that folder:\n")
    _say("""  activity-worker invoke '{"name": "Ann"}'    call the handler once""")
    _say("  activity-worker dev                         type inputs; the handler is reloaded when you save it")
    _say("  pytest                                      run its tests")
    _say("  docker build -t IMAGE . && docker push IMAGE; name it in pool.yaml; kubectl apply -f pool.yaml")
    return EXIT_OK


def render(name: str) -> dict[str, str]:
    """Return the files by their names, for an activity of this name."""
    folder = resources.files("activity_worker.cli") / "template"
    entries = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(_ENDING)), key=lambda entry: entry.name
    )
    return {
        entry.name.removesuffix(_ENDING): Template(entry.read_text(encoding="utf-8")).substitute(name=name)
        for entry in entries
    }


def _name_of(target: Path) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", target.resolve().name.lower()).strip("-")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: expected a name of small letters, digits and hyphens, such as resize-images")
    return name


def _say(line: str) -> None:
    print(line, file=sys.stdout)  # noqa: T201 - what the command is for
