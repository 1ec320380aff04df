"""The table of settings in docs/worker.md, row by row: flag, variable, field of the manifest; and what has none."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from activity_operator.api.pod_own import _FIELDS, OWN_VARIABLES
from activity_worker.cli import make_parser
from activity_worker.config.settings import read_settings
from activity_worker.contract import Env
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.supervisor.options_of_settings import polling_of, task_options_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/worker.md").read_text(encoding="utf-8")
CRD = yaml.safe_load((ROOT / "crds/activitypools.activitypools.dev.yaml").read_text(encoding="utf-8"))
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
OPERATORS, USERS = "the operator", "image or `podTemplate`"
HANDLER = "module:attribute"
ARN = "arn:aws:states:eu-west-1:123456789012:activity:resize"
#: One environment for each source: all that it needs, and what has the worker read the rest.
SOURCES: tuple[Mapping[str, str], ...] = (
    {Env.ACTIVITY_ARN: ARN},
    {Env.SWF_DOMAIN: "shop", Env.SWF_TASK_LIST: "orders"},
    {Env.REDIS_URL: "redis://r", Env.REDIS_FLOW: "f", Env.REDIS_QUEUE: "q"},
    {Env.STORE_URL: "sqlite:////tmp/tasks.db"},
    {Env.TASKBROKER: "b:1", Env.TASKBROKER_DELIVERY: "push", Env.TASKBROKER_PUSH_ADDRESS: "127.0.0.1:1"},
)


@dataclass(frozen=True)
class Setting:
    """A row: the variables are those of its second column, `pool` is its third as written."""

    flag: str
    variables: frozenset[str]
    pool: str

    @property
    def fields(self) -> list[str]:
        """The fields of the manifest that it names."""
        return [] if self.pool in {OPERATORS, USERS} else re.findall(r"`([\w.]+)`", self.pool)


def table(first_heading: str) -> list[list[str]]:
    lines = PAGE.partition(f"| {first_heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


SETTINGS = [Setting(code(row[0])[0], frozenset(code(row[1])), row[2]) for row in table("flag")]
LIBRARY_ONLY = {code(row[0])[0] for row in table("library only")}


class Recorded(dict[str, Any]):
    """A mapping that notes which names are asked for, with its own kind."""

    def __init__(self, kind: str, asked: list[tuple[str, str]], known: Mapping[str, str]) -> None:
        super().__init__(known)
        self._kind, self._asked = kind, asked

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.append((self._kind, str(name)))
        return super().get(name, default)


def read_pairs() -> Iterator[tuple[str, str]]:
    """Yield each flag with the variable that is read where the flag is not given."""
    for known in SOURCES:
        asked: list[tuple[str, str]] = []
        read_settings(Recorded("flag", asked, {}), Recorded("variable", asked, known))
        for (kind, flag), (then, variable) in pairwise(asked):
            if (kind, then) == ("flag", "variable") and flag not in {"", "report-url"}:
                yield (HANDLER if flag == "handler" else f"--{flag}"), variable


def in_the_crd(path: str) -> bool:
    here: Any = SPEC
    for name in path.split("."):
        here = here.get("properties", {}).get(name)
        if here is None:
            return False
    return True


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.flag)
def test_row_of_a_setting_is_right(setting: Setting) -> None:
    run = make_parser()._subparsers._group_actions[0].choices["run"]  # type: ignore[union-attr, index]
    flags = {flag for action in run._actions for flag in action.option_strings or [action.dest]}

    assert (setting.flag if setting.flag != HANDLER else "handler") in flags
    assert {variable for flag, variable in read_pairs() if flag == setting.flag} == setting.variables
    assert [field for field in setting.fields if not in_the_crd(field)] == []
    # What has a field or is the operator's cannot be set in `podTemplate`, but for the region and the endpoint.
    shared = {Env.REGION, Env.ENDPOINT_URL}
    assert (setting.variables - shared <= OWN_VARIABLES) == (setting.pool != USERS)
    assert bool(setting.fields) == (setting.pool not in {OPERATORS, USERS})


def test_table_has_every_variable_that_a_flag_stands_for() -> None:
    named = {(setting.flag, variable) for setting in SETTINGS for variable in setting.variables}

    assert named == set(read_pairs())


def test_refusal_of_a_variable_names_the_field_of_the_table() -> None:
    named = {variable: setting.fields for setting in SETTINGS for variable in setting.variables}

    assert _FIELDS.keys() <= named.keys()
    for variable, text in _FIELDS.items():
        assert [text] == [f"is the operator's; set spec.{field} instead" for field in named[variable]]


def test_library_only_options_exist_and_no_setting_changes_them() -> None:
    options = {f"{kind.__name__}.{one.name}" for kind in (Polling, TaskOptions) for one in fields(kind)}
    plain = read_settings({"activity-arn": ARN}, {})
    flags = {
        "poll-attempts": "7", "poll-max-pause-seconds": "7", "task-deadline-seconds": "7",
        "task-heartbeat-seconds": "7", "on-error": "leave", "cancel-grace-seconds": "7", "activity-arn": ARN,
    }  # fmt: skip
    changed = read_settings(flags, {})
    tasks = [task_options_of(read, read.task_heartbeat_seconds) for read in (plain, changed)]
    pairs = ((polling_of(plain), polling_of(changed)), tasks)
    settable = {
        f"{type(before).__name__}.{one.name}"
        for before, after in pairs
        for one in fields(before)
        if getattr(before, one.name) != getattr(after, one.name)
    }

    assert options - settable == LIBRARY_ONLY
