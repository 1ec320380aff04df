"""The identity of image builds: names, content keys, and the files of a folder that belong to a build."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import paths

# Files of a developer's tree that are never part of an image, besides the context's own .dockerignore.
LEFT_OUT = frozenset(
    {
        *(".git", ".venv", "__pycache__", "node_modules", "dist", "build"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"),
    }
)
KEPT = 2  # builds of a family whose archives are kept: those of two working trees
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


@dataclass(frozen=True)
class Recipe:
    """An image to build: its tag (a version other than latest), Dockerfile, context and build arguments."""

    tag: str
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments; they include the content key of the parent image, so that a new parent rebuilds its children."""
    family: str = ""
    """The name under which former builds are counted, where the tag itself changes with the content; else the tag."""


def of(recipe: Recipe, more: Mapping[str, str] | None = None) -> str:
    """The key of a build: equal keys, equal images.

    It covers the Dockerfile, its arguments, `more` arguments, and the files of the context that the Dockerfile copies;
    other files do not change the key.
    """
    text = recipe.dockerfile.read_text()
    arguments = {**(more or {}), **recipe.arguments}
    digest = hashlib.sha256(json.dumps([text, sorted(arguments.items())]).encode())
    for path in _files(recipe.context, copied(text)):
        digest.update(f"{path.relative_to(recipe.context)}\0{path.lstat().st_mode & 0o111}\0".encode())
        digest.update(str(path.readlink()).encode() if path.is_symlink() else path.read_bytes())
    return digest.hexdigest()[:20]


def copy_context(context: Path, to: Path) -> None:
    """Copy the files of a build; a developer's environments and caches are left out."""
    shutil.copytree(context, to, symlinks=True, ignore=lambda _, names: [name for name in names if name in LEFT_OUT])


def known(recipe: Recipe) -> str | None:
    """The key that was built last for this recipe's family."""
    keys = _noted(_note(recipe))
    return keys[-1] if keys else None


def note(recipe: Recipe, key: str, in_use: Callable[[str], bool] = lambda _: False) -> list[str]:
    """Record the key as the last build; return the keys to delete: all but those in use and the last KEPT of a family.

    Several working trees share a cache, so the build of one must not delete that of another.
    """
    note = _note(recipe)
    keys = [*(former for former in _noted(note) if former != key), key]
    note.parent.mkdir(parents=True, exist_ok=True)
    staying = [former for former in keys[:-KEPT] if in_use(former)] + keys[-KEPT:]
    note.write_text("\n".join(staying))
    kept = {one for other in note.parent.iterdir() for one in _noted(other)}
    return [former for former in keys[:-KEPT] if former not in kept]


def pip_settings() -> str:
    """A pip.conf with the index settings of this machine's environment; empty when there are none."""
    found = {name: os.environ.get("PIP_" + name.upper().replace("-", "_")) for name in PIP_SETTINGS}
    lines = [f"{name} = {value}\n" for name, value in found.items() if value]
    return "[global]\n" + "".join(lines) if lines else ""


def copied(dockerfile: str) -> list[str]:
    """The paths of the context that COPY and ADD name; the whole context (`.`) if one is not a plain path."""
    found: list[str] = []
    for line in dockerfile.replace("\\\n", " ").splitlines():
        words = line.split()
        if not words or words[0].upper() not in ("COPY", "ADD") or any(word.startswith("--from") for word in words):
            continue
        sources = [word for word in words[1:] if not word.startswith("--")][:-1]
        if any(set(source) & set("*?[$\"'") for source in sources):
            return ["."]
        found += sources
    return found


def _files(context: Path, below: Iterable[str]) -> Iterator[Path]:
    for start in sorted({context / path.lstrip("/") for path in below}):
        if start.is_file() or (start.is_symlink() and not start.is_dir()):
            yield start  # the builder reports a missing one
        for folder, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            yield from (Path(folder) / name for name in sorted([*names, *links]) if name not in LEFT_OUT)


def _note(recipe: Recipe) -> Path:
    return paths.cluster() / "images" / "builds" / full_name(recipe.family or recipe.tag).replace("/", "%")


def _noted(note: Path) -> list[str]:
    return note.read_text().split() if note.exists() else []
