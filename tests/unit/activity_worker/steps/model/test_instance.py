"""New instances and the names of runners: what cannot be stored is refused or shortened."""

import math
from typing import Any

import pytest

from activity_worker.steps import RunnerOptions
from activity_worker.steps.model.definition_parser import parse
from activity_worker.steps.model.instance import MAX_RUNNER_NAME, Instance, create_instance, runner_name

DEFINITION = parse({"name": "t", "steps": ["a"]})


def new(arguments: Any = None, **more: Any) -> Instance:
    return create_instance(DEFINITION, {} if arguments is None else arguments, now=1000.0, **more)


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, "tomorrow"])
def test_time_that_is_no_finite_number_is_refused(at: Any) -> None:
    with pytest.raises(ValueError, match="at is a time in Unix seconds such as 1767225600, not "):
        new(at=at)


def test_instance_is_due_at_its_time_and_at_once_for_a_past_one() -> None:
    assert [new(at=at).next_run_time for at in (None, 5, 2000.0)] == [1000.0, 1000.0, 2000.0]


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
def test_id_that_is_no_storable_text_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="an instance's id is text without NUL and half surrogate pairs, not "):
        new(instance_id=name)


@pytest.mark.parametrize("arguments", [[1], "text", 5])
def test_arguments_that_are_no_map_are_refused(arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"an instance.s arguments are a map such as .*, not a "):
        new(arguments)


@pytest.mark.parametrize("name", ["r" * (MAX_RUNNER_NAME + 1), "a\x00b"])
def test_name_of_a_runner_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name is text of at most 255 characters without NUL, not "):
        RunnerOptions(name)


def test_name_of_a_claim_fits_for_any_worker() -> None:
    names = {runner_name("w" * 300) for _ in range(3)}

    assert {len(name) for name in names} == {MAX_RUNNER_NAME}
    assert len(names) == 3
    assert runner_name("pod-1").startswith("pod-1-")
