"""A runner that dies before or after any write to the store: another one brings the instance to the same end."""

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from activity_worker.steps import RunnerOptions, TaskStore
from tests.integration.steps.world import World, expected

WRITES = ("claim", "record")
CASES = [
    ("strict", {"before": {"1": 1}, "after": {"2": 1}, "breaks": 3}),
    ("lenient", {"before": {"0": 1}, "after": {"3": 1}, "breaks": 2}),
]
LEASE = 60.0


class DeathError(BaseException):
    """The runner is gone: no handler of errors gets to see it."""


class Dying:
    """Lets a store's n-th write be the last thing that its runner does, or the first that it does not."""

    def __init__(self, store: TaskStore, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.after = False
        for name in WRITES:
            patch.setattr(store, name, self._deadly(getattr(store, name)))

    def _deadly(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def deadly(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise DeathError
            done = await write(*arguments, **more)
            if self.left == 0:
                raise DeathError
            return done

        return deadly


@pytest.mark.parametrize(("task", "troubles"), CASES)
@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after a write"])
async def test_the_end_is_the_same_whichever_write_a_runner_dies_at(
    store: TaskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, troubles: dict[str, Any], after: bool
) -> None:
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    now = 1000.0
    tasks = world.tasks()
    tasks._clock = lambda: now
    await tasks.sync(store)
    none = dict.fromkeys("0123", 0)
    data = {**troubles, **{name: {**none, **troubles[name]} for name in ("before", "after")}}
    dying = Dying(store, monkeypatch)
    dying.after = after
    for number in itertools.count(1):
        name = await tasks.new(store, task, data, instance_id=f"n{number}")
        dying.left = number
        deaths = 0
        while not (await store.get(name)).instance.complete:
            try:
                await tasks.runner(store, RunnerOptions(f"r{number}.{deaths}", lease_seconds=LEASE)).run_due()
            except DeathError:
                deaths += 1
            now += LEASE
        ended = (await store.get(name)).instance
        assert (ended.success, world.effects(name)) == expected(task, data), f"write {number}"
        assert [failure.error.code for failure in ended.status.failures] == ["Broken"]
        assert set(ended.data["worked"]) == {effect[-1] for effect in world.effects(name) if "method" in effect}
        if deaths == 0:
            break
    assert number > 12
