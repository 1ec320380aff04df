"""README and docs name what exists: the spec's fields, commands, files, reasons, flags, events, metrics and errors."""

import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.metrics import Metrics
from activity_worker.cli import make_parser
from activity_worker.contract import EventName
from activity_worker.metrics import WorkerMetrics

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
WORKER = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")


def fields_of(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield the paths of the leaves as a manifest writes them."""
    for name, info in model.model_fields.items():
        here = f"{path}{info.alias or name}"
        inner = next((part for part in parts_of(info.annotation) if issubclass(part, BaseModel)), None)
        if inner is None:
            yield here
        else:
            yield from fields_of(inner, f"{here}.")


def parts_of(annotation: object) -> list[type]:
    """Return the classes an annotation names, through `X | None`."""
    return [part for part in (annotation, *getattr(annotation, "__args__", ())) if isinstance(part, type)]


def table_of(text: str) -> set[str]:
    return set(re.findall(r"^\| `([A-Za-z.]+)` \|", text, re.MULTILINE))


def series_of(registry: CollectorRegistry) -> set[str]:
    """Return the names by which the registry's metrics are scraped."""
    endings = {"counter": "_total", "info": "_info"}
    return {one.name + endings.get(one.type, "") for one in registry.collect()}


def source_of(package: str) -> str:
    return "".join(file.read_text(encoding="utf-8") for file in (ROOT / package).rglob("*.py"))


def test_the_manifest_table_has_every_field_of_the_spec_and_no_other() -> None:
    fields = set(fields_of(PoolSpec))

    assert "scaling.scaleDown.zeroAfterSeconds" in fields
    assert fields == table_of(README)


def test_the_metrics_table_has_every_series_of_the_operator_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

    assert series_of(Metrics("1").registry) == set(re.findall(r"^\| `(activitypool_\w+)` \|", text, re.MULTILINE))


def test_the_worker_page_has_every_series_of_a_worker_and_no_other() -> None:
    named = set(re.findall(r"^\| `(activity_worker_\w+)` \|", WORKER, re.MULTILINE))

    assert series_of(WorkerMetrics("1", slots=1).registry) == named


def test_every_make_target_that_the_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))

    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))

    assert {"unit", "test"} <= named
    assert named <= targets


def test_every_file_that_the_readme_links_to_exists() -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", README)

    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_every_reason_of_the_fault_table_is_one_that_a_pool_can_say() -> None:
    rows = re.findall(r"^\| [^|`]+ \| ([^|]+) \|", FAULTS, re.MULTILINE)
    named = {reason for cell in rows for reason in re.findall(r"`(\w+)`", cell)} - {"Ready"}

    assert {"AccessDenied", "NoRuntime", "ReportsUnauthenticated"} <= named
    assert named <= {str(reason) for reason in Reason}


def test_every_event_of_the_fault_page_is_one_that_the_operator_says() -> None:
    cells = re.findall(r"^\| (`[^|]+) \| (?:Normal|Warning) \|", FAULTS, re.MULTILINE)
    named = {event for cell in cells for event in re.findall(r"`(\w+)`", cell)}
    source = source_of("operator/activity_operator")

    assert {"ScaledUp", "LeaseExpired"} <= named
    assert {event for event in named if f'"{event}"' not in source} == set()


def test_the_worker_page_has_every_error_name_of_ours_and_no_other() -> None:
    names = set(re.findall(r'"(ActivityPool\.\w+)"', source_of("worker_image/activity_worker")))

    assert "ActivityPool.Deleted" in names
    assert names == set(re.findall(r"^\| `(ActivityPool\.\w+)` \|", WORKER, re.MULTILINE))


def test_the_worker_page_has_every_flag_of_the_command_and_no_other() -> None:
    run = make_parser()._subparsers._group_actions[0].choices["run"]  # type: ignore[union-attr, index]
    flags = {flag for action in run._actions for flag in action.option_strings} - {"-h", "--help"}

    assert flags == set(re.findall(r"^\| `(--[a-z-]+)`", WORKER, re.MULTILINE))


def test_the_worker_page_has_every_event() -> None:
    assert {name for name in EventName if f"`{name}`" not in WORKER} == set()
