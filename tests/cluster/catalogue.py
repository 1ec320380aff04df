"""The list of every image that the suites, the benchmarks and the demo run; `make prepare` builds it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from tests.cluster.emulator_ports import EmulatorName
from tests.cluster.image_key import Recipe, full_name
from tests.cluster.lifecycle import image_key_of

ROOT = Path(__file__).parents[2]
#: Later versions of the handler's image, good and bad, each a folder of tests/e2e/versions.
HANDLER_VERSIONS = ("2", "3", "crashing", "failing")
#: The folders of `examples` that have an image.
EXAMPLES = ("flows", "invoices", "mail", "orders", "resize", "wordcount")


def everything() -> list[Recipe]:
    """All images, each after its parent."""
    return [
        worker(),
        slim_worker(),
        operator(),
        handler(),
        *(handler_version(version) for version in HANDLER_VERSIONS),
        *map(example, EXAMPLES),
        slim_example(),
        next_operator(),
        *(emulator(name) for name in get_args(EmulatorName)),
        probe(),
    ]


def worker() -> Recipe:
    """The worker's base image."""
    return Recipe("activity-worker:dev", ROOT / "worker_image" / "Dockerfile", ROOT)


def slim_worker() -> Recipe:
    """The worker's base image without the libraries of durable tasks and of taskbrokers."""
    return Recipe("activity-worker:slim", ROOT / "worker_image" / "Dockerfile", ROOT, {"VARIANT": "-slim"})


def operator() -> Recipe:
    """The operator."""
    return Recipe("activity-operator:dev", ROOT / "operator" / "Dockerfile", ROOT)


def handler() -> Recipe:
    """The handler of the end-to-end tests and the demo; its tag changes with the worker's image."""
    return _on_worker("e2e-handler", ROOT / "tests" / "e2e")


def handler_version(version: str) -> Recipe:
    """A later version of the handler, one of HANDLER_VERSIONS."""
    folder = ROOT / "tests" / "e2e" / "versions" / version
    parent = handler()
    arguments = {"HANDLER_IMAGE": full_name(parent.tag), "HANDLER_KEY": image_key_of(parent)}
    return Recipe(f"e2e-handler-{version}:dev", folder / "Dockerfile", folder, arguments)


def example(name: str) -> Recipe:
    """An example's image, one of EXAMPLES; its tag changes with the worker's image."""
    return _on_worker(f"e2e-{name}", ROOT / "examples" / name)


def slim_example() -> Recipe:
    """The example `wordcount` on the slim image."""
    return _on_worker("e2e-wordcount-slim", ROOT / "examples" / "wordcount", slim_worker())


def next_operator() -> Recipe:
    """An operator that renders worker pods differently from the present one."""
    folder = ROOT / "tests" / "e2e" / "operator_days" / "next"
    parent = operator()
    arguments = {"OPERATOR_IMAGE": full_name(parent.tag), "OPERATOR_KEY": image_key_of(parent)}
    return Recipe("activity-operator:next", folder / "Dockerfile", folder, arguments)


def emulator(name: EmulatorName) -> Recipe:
    """A Step Functions emulator."""
    folder = ROOT / "tests" / "cluster" / "emulators" / name
    return Recipe(f"activitypool/{name}:test", folder / "Dockerfile", folder)


def probe() -> Recipe:
    """A web server, for tests of the cluster itself."""
    folder = ROOT / "tests" / "cluster" / "probe_image"
    return Recipe("activitypool/probe:test", folder / "Dockerfile", folder)


def _on_worker(name: str, folder: Path, parent: Recipe | None = None) -> Recipe:
    base = worker() if parent is None else parent
    key = image_key_of(base)
    arguments = {"WORKER_IMAGE": full_name(base.tag), "WORKER_KEY": key}
    return Recipe(f"{name}:{key[:12]}", folder / "Dockerfile", folder, arguments, family=f"{name}:dev")
