"""When two image builds are the same: names, content keys, and what of a folder belongs to a build."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.cluster import places

# Of a developer's tree, never part of an image; on top of the context's own .dockerignore.
LEFT_OUT = frozenset(
    {
        *(".git", ".venv", "__pycache__", "node_modules", "dist", "build"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"),
    }
)
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "retries")


def full_name(tag: str) -> str:
    """The name Kubernetes gives an image: `a/b:1` is `docker.io/a/b:1`, `b:1` is `docker.io/library/b:1`.

    Raises ValueError for a tag that a kubelet would always pull, or that names no version.
    """
    name, _, version = tag.rpartition(":")
    if not name or "/" in version or version == "latest":
        raise ValueError(f"image tag {tag!r}: name a version other than latest, such as activitypool/worker:dev")
    first, _, rest = name.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return tag
    return f"docker.io/{tag}" if rest else f"docker.io/library/{tag}"


def of(dockerfile: Path, context: Path, arguments: Mapping[str, str]) -> str:
    """The key of a build: equal keys, equal images.

    Covers the Dockerfile, its arguments, parent images built here, and of the context what it copies:
    an image is not built anew for a changed file that it never sees.
    """
    text = dockerfile.read_text()
    digest = hashlib.sha256(json.dumps([text, sorted(arguments.items()), _parents(text, arguments)]).encode())
    for path in _files(context, copied(text)):
        digest.update(f"{path.relative_to(context)}\0{path.lstat().st_mode & 0o111}\0".encode())
        digest.update(str(path.readlink()).encode() if path.is_symlink() else path.read_bytes())
    return digest.hexdigest()[:20]


def copy_context(context: Path, to: Path) -> None:
    """Copy what belongs to a build; a developer's environments and caches stay behind."""
    shutil.copytree(context, to, symlinks=True, ignore=lambda _, names: [name for name in names if name in LEFT_OUT])


def known(tag: str) -> str | None:
    """The key that was built last under this tag."""
    note = _note(tag)
    return note.read_text() if note.exists() else None


def note(tag: str, key: str) -> str | None:
    """Note the key built under the tag; returns the former key when no tag stands for it any more."""
    former = known(tag)
    _note(tag).parent.mkdir(parents=True, exist_ok=True)
    _note(tag).write_text(key)
    if former is None or former in {other.read_text() for other in _note(tag).parent.iterdir()}:
        return None
    return former


def pip_settings() -> str:
    """A pip.conf with the index settings of this machine's environment; empty when there are none."""
    found = {name: os.environ.get("PIP_" + name.upper().replace("-", "_")) for name in PIP_SETTINGS}
    lines = [f"{name} = {value}\n" for name, value in found.items() if value]
    return "[global]\n" + "".join(lines) if lines else ""


def _parents(dockerfile: str, arguments: Mapping[str, str]) -> dict[str, str]:
    """Keys of the parent images that were built here: a rebuilt parent makes its children new."""
    parents: dict[str, str] = {}
    for name in re.findall(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)", dockerfile, re.MULTILINE | re.IGNORECASE):
        resolved = re.sub(r"\$\{?(\w+)\}?", lambda found: arguments.get(found[1], found[0]), name)
        if (key := _known_or_none(resolved)) is not None:
            parents[resolved] = key
    return parents


def _known_or_none(name: str) -> str | None:
    try:
        return known(name)
    except ValueError:
        return None


def copied(dockerfile: str) -> list[str]:
    """The paths of the context that COPY and ADD name; all of it (`.`) as soon as one is not a plain path."""
    paths: list[str] = []
    for line in dockerfile.replace("\\\n", " ").splitlines():
        words = line.split()
        if not words or words[0].upper() not in ("COPY", "ADD") or any(word.startswith("--from") for word in words):
            continue
        sources = [word for word in words[1:] if not word.startswith("--")][:-1]
        if any(set(source) & set("*?[$\"'") for source in sources):
            return ["."]
        paths += sources
    return paths


def _files(context: Path, paths: Iterable[str]) -> Iterator[Path]:
    for start in sorted({context / path.lstrip("/") for path in paths}):
        if start.is_file() or (start.is_symlink() and not start.is_dir()):
            yield start  # a missing one is the builder's to name
        for folder, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            yield from (Path(folder) / name for name in sorted([*names, *links]) if name not in LEFT_OUT)


def _note(tag: str) -> Path:
    return places.cluster() / "images" / "tags" / full_name(tag).replace("/", "%")
