"""The pages name what exists: fields, commands, files, reasons, flags, events, metrics, errors. Their snippets run."""

import asyncio
import json
import pkgutil
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from activity_operator.api.conditions import ConditionType, Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.metrics import Metrics
from activity_worker.cli import make_parser
from activity_worker.contract import EventName
from activity_worker.supervisor.metrics import WorkerMetrics

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
WORKER = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")

#: The pages for users, by their path.
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/*.md", "examples/*/*.md", ".github/*.md")
    for path in sorted(ROOT.glob(pattern))
}
#: Texts about the product that name no system by a number.
PUBLISHED = ("*.md", "docs/**/*", "examples/**/*", "charts/**/*", "crds/*", "operator/**/*.*", "worker_image/**/*.*")
README_LINES = 200
#: What `activity-worker init` writes.
TEMPLATE = ROOT / "worker_image/activity_worker/cli/template"


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
    assert fields == table_of(REFERENCE.partition("## Status")[0])


def test_the_status_table_has_every_condition_and_no_other() -> None:
    assert set(ConditionType) == table_of(REFERENCE.partition("## Status")[2])


def test_the_metrics_table_has_every_series_of_the_operator_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

    rendered = set(re.findall(r"^# TYPE (\w+) ", Metrics("1").render().decode(), re.MULTILINE))
    assert rendered == set(re.findall(r"^\| `(activitypool_\w+)` \|", text, re.MULTILINE))


def test_the_worker_page_has_every_series_of_a_worker_and_no_other() -> None:
    named = set(re.findall(r"^\| `(activity_worker_\w+)` \|", WORKER, re.MULTILINE))

    assert series_of(WorkerMetrics("1", slots=1).registry()) == named


def blocks_of(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a language in a page, list items' indented ones too."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", PAGES[page], re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def pools() -> list[Any]:
    """Return every ActivityPool manifest in the pages."""
    texts = [text for page in PAGES for text in blocks_of(page, "yaml")]
    found = [raw for text in texts for raw in yaml.safe_load_all(text)]
    return [raw for raw in found if raw.get("kind") == "ActivityPool"]


def anchors_of(text: str) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= README_LINES


def test_every_make_target_that_a_page_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))

    named = {name for text in PAGES.values() for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}

    assert {"unit", "test", "demo", "bench"} <= named
    assert named <= targets | {"help"}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", PAGES[page])
    local = [link.partition("#") for link in links if not link.startswith("http")]
    targets = [(ROOT / page if not path else (ROOT / page).parent / path, anchor) for path, _, anchor in local]

    assert [path for path, _ in targets if not path.exists()] == []
    wrong = [(path, anchor) for path, anchor in targets if anchor and anchor not in anchors_of(path.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_ours_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"(?<![\w./-])((?:tests|docs|examples|charts|crds)/[\w./*-]*[\w*])", PAGES[page])

    assert [path for path in named if not any(ROOT.glob(path))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_python_name_of_ours_in_a_page_exists(page: str) -> None:
    named = set(re.findall(r"\bactivity_(?:worker|operator)(?:\.[A-Za-z]\w*)+(?::\w+)?", PAGES[page]))

    for name in sorted(named):
        pkgutil.resolve_name(name)


def test_the_index_has_every_page_of_the_docs() -> None:
    index = PAGES["docs/README.md"]

    assert {path.name for path in (ROOT / "docs").glob("*.md") if f"({path.name}" not in index} == {"README.md"}


def test_every_pool_in_a_page_is_valid() -> None:
    found = [PoolSpec.model_validate(raw["spec"]) for raw in pools()]

    assert {spec.source_kind for spec in found} >= {"stepFunctions", "redis"}


def test_every_policy_in_a_page_is_json_with_actions_that_exist() -> None:
    texts = [text for page in PAGES for text in blocks_of(page, "json")]
    actions = re.findall(r'"states:(\w+)"', "".join(json.dumps(json.loads(text)) for text in texts))

    assert {"GetActivityTask", "SendTaskSuccess"} <= set(actions)
    assert set(actions) <= set(re.findall(r'"([A-Z]\w+)"', source_of("worker_image/activity_worker/wire")))


def test_the_handler_in_the_readme_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, test = blocks_of("README.md", "python")
    module = types.ModuleType("handler")
    exec(handler, module.__dict__)
    monkeypatch.setitem(sys.modules, "handler", module)
    names: dict[str, Any] = {}
    exec(test, names)

    asyncio.run(names["test_words_are_counted"]())


def test_no_published_text_names_a_system_by_a_number() -> None:
    found = {path for pattern in PUBLISHED for path in ROOT.glob(pattern) if path.is_file()}
    files = {path for path in found if path.suffix not in {".svg", ".pyc"}}
    numbered = re.compile(r"\b(?:system|seed)s? \d{3}\b", re.IGNORECASE)

    assert len(files) > 40
    assert [path for path in sorted(files) if numbered.search(path.read_text(encoding="utf-8"))] == []


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


def test_every_extra_that_a_page_installs_exists() -> None:
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    found = [names for text in PAGES.values() for names in re.findall(r"(?:activitypool|'\.)\[([a-z,]+)\]", text)]
    named = {name for names in found for name in names.split(",")}

    assert {"worker", "otel", "taskbroker"} <= named
    assert named <= known


@pytest.mark.parametrize("page", [page for page in PAGES if "docker build" in PAGES[page]])
def test_every_image_that_a_page_builds_has_a_dockerfile(page: str) -> None:
    for arguments in re.findall(r"^ *docker +build (.+)$", PAGES[page], re.MULTILINE):
        *options, folder = arguments.split()
        named = options[options.index("-f") + 1] if "-f" in options else f"{folder}/Dockerfile"
        # The handler's page builds in the folder that `activity-worker init` has written.
        made = page == "docs/handlers.md" and folder == "."

        assert (TEMPLATE / "Dockerfile.template" if made else ROOT / named).is_file(), arguments


@pytest.mark.parametrize("page", [page for page in PAGES if "kubectl apply -f" in PAGES[page]])
def test_every_manifest_that_a_page_applies_exists(page: str) -> None:
    for named in re.findall(r"kubectl apply -f ([\w./-]+)", PAGES[page]):
        made = page == "docs/handlers.md" and "/" not in named

        assert (TEMPLATE / f"{named}.template" if made else ROOT / named).is_file(), named
