"""Runner processes are killed at random: no instance is stuck, no effect happens twice, no lease is shared."""

import os
from pathlib import Path

import pytest

from activity_worker.steps import TaskStore
from tests.integration.steps.kills import Run, run, together

#: Set it to 10000 for the long run.
INSTANCES = int(os.environ.get("ACTIVITYPOOL_KILL_INSTANCES", "150"))


@pytest.mark.timeout(max(300, INSTANCES))
def test_killed_runners_leave_nothing_stuck_and_nothing_done_twice(url: str, store: TaskStore, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    found = run(Run(url, tmp_path / "files", INSTANCES, kills=max(6, INSTANCES // 40)))

    assert found.wrong == []
    assert found.kills > 0
    assert found.takeovers > 0


def test_concurrent_calls_are_detected_unless_one_runner_was_dead() -> None:
    def line(runner: str, call: str, at: float) -> dict[str, object]:
        return {"runner": runner, "call": call, "at": at}

    lines = [line("a", "begins", 1.0), line("b", "begins", 2.0), line("b", "ends", 3.0)]

    assert together(lines, {"a": 1.5}) == []
    assert together(lines, {"a": 2.5}) == ["b called at 2.0 while a did"]
    assert together(lines, {}) == ["b called at 2.0 while a did", "a never ended its call and was not killed"]
