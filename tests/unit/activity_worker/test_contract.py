"""Grants say which activity an SWF task is of, and look as before for the tasks of other sources."""

import tomllib
from pathlib import Path

import pytest

from activity_worker.contract import VERSION, ContractError, Grant, LeasedTask, ScheduledActivity

ROOT = Path(__file__).parents[3]

CHARGE = ScheduledActivity("charge", "2", "charge-1", "order-1", "run-1")


def test_grant_of_an_swf_task_keeps_type_and_execution() -> None:
    grant = Grant("a", "token", "a plain text", CHARGE)

    again = Grant.from_wire(grant.to_wire())

    assert again == grant
    assert again.task == LeasedTask("token", "a plain text", CHARGE)


def test_grant_of_another_source_looks_as_before() -> None:
    assert Grant("a", "token", "{}").to_wire() == {"id": "a", "taskToken": "token", "input": "{}"}
    assert Grant.from_wire({"id": "a", "taskToken": "token", "input": "{}"}).task == LeasedTask("token", "{}")


def test_grant_with_an_unreadable_activity_names_the_field() -> None:
    with pytest.raises(ContractError, match="activity"):
        Grant.from_wire({"id": "a", "taskToken": "token", "input": "{}", "activity": "charge"})
    with pytest.raises(ContractError, match="version"):
        Grant.from_wire({"id": "a", "taskToken": "token", "input": "{}", "activity": {"name": "charge", "version": 2}})


def test_version_in_the_code_is_the_projects() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
