"""The import contracts of pyproject.toml name what is there."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "worker_image/activity_worker"
#: What the operator may import.
SHARED = {"contract", "wire"}


def contracts() -> list[dict[str, Any]]:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, Any]] = configuration["tool"]["importlinter"]["contracts"]
    return found


def test_every_room_of_the_worker_but_the_shared_is_protected() -> None:
    (protected,) = (one for one in contracts() if one.get("allowed_importers") == ["activity_worker"])
    rooms = {
        path.stem
        for path in WORKER.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    assert {name.removeprefix("activity_worker.") for name in protected["protected_modules"]} == rooms - SHARED


def test_folder_of_the_operator_shadows_no_standard_library_module() -> None:
    assert not (ROOT / "operator/__init__.py").exists()
