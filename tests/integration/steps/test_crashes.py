"""A process dies before, within or after any write to the store: the instance ends as without the death."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from activity_worker.steps import FinalError, Task, Tasks, TaskStore, current, step
from activity_worker.steps.model.transitions import CannotRetryError
from activity_worker.steps.runner.tasks import cancel, pause, retry
from tests.integration.steps.deaths import Fate, Moment, Stage, ending
from tests.integration.steps.world import World, expected

#: The process dies at each write of a story in turn.
pytestmark = pytest.mark.timeout(400)

Scenario = Callable[[Stage], Awaitable[str]]
MOMENTS: tuple[Moment, ...] = ("before", "within", "after")
SURE: dict[str, Any] = {"retry": {"retries": 9, "delays": [1]}, "check": "was_done"}


class Shop:
    """Orders whose effects are recorded outside of the store, each with a check; a call may wait for an action."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.inside = asyncio.Event()
        self.go_on = asyncio.Event()
        self.stock = True
        self.waits = self.renews = False
        reverse = {"method": "refund", **SURE}
        steps = [
            step("pay", reverse=reverse, **SURE),
            step("ship", **SURE),
            step("task.letter.new", output={"id": "letter"}),
        ]
        order = Task(
            "order", steps, methods={"pay": self.pay, "ship": self.ship, "refund": self.effect, "was_done": self.done}
        )
        self.tasks = Tasks([order, Task("letter", ["write"], methods={"write": self.effect})])

    async def pay(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Pay; while the call runs, a test may act."""
        assert self.stage is not None
        await self.effect(arguments)
        if self.waits:
            self.inside.set()
            await self.go_on.wait()
        if self.renews:
            await self.stage.renewals(2)
        return {"paid": True}

    async def ship(self, arguments: dict[str, Any]) -> None:
        """Ship, or fail because nothing is left."""
        if not self.stock:
            raise FinalError("OutOfStock", "the last one has gone")
        await self.effect(arguments)

    async def effect(self, _: dict[str, Any]) -> None:
        """Have the effect of the step."""
        assert self.stage is not None
        self.stage.effect(current().key, f"{current().sub_step} {current().task_name} {current().step_num}")

    async def done(self, _: dict[str, Any]) -> Any:
        """Return whether the effect happened; the output `paid` was lost with the call's answer and is unused."""
        assert self.stage is not None
        return True if current().key in self.stage.effects else None


async def ordered(stage: Stage) -> str:
    async def order(store: TaskStore) -> str:
        await stage.tasks.sync(store)
        return await stage.tasks.new(store, "order", {"paid": True}, instance_id="mine")

    return await stage.person(order)


async def delivered(stage: Stage, shop: Shop) -> str:
    name = await ordered(stage)
    await stage.run(name)
    await stage.run((await stage.store.get(name)).instance.data["letter"])
    return name


async def renewed(stage: Stage, shop: Shop) -> str:
    shop.renews = True
    name = await ordered(stage)
    await stage.run(name, lease_seconds=0.1)
    return name


async def canceled_between_calls(stage: Stage, shop: Shop) -> str:
    name = await ordered(stage)
    await stage.run(name, calls=1)
    await stage.person(lambda store: cancel(store, name, stage.now))
    await stage.run(name)
    return name


async def while_a_call_runs(stage: Stage, shop: Shop, act: Callable[[TaskStore], Awaitable[Any]]) -> None:
    """Act while the first call runs; if a runner died before that call, do not wait for it."""
    shop.waits = True
    running = asyncio.ensure_future(stage.run("mine"))
    await shop.inside.wait()
    await stage.person(act)
    shop.waits = False
    shop.go_on.set()
    await running


async def canceled_in_a_call(stage: Stage, shop: Shop) -> str:
    name = await ordered(stage)
    await while_a_call_runs(stage, shop, lambda store: cancel(store, name, stage.now))
    return name


async def paused_in_a_call_and_resumed(stage: Stage, shop: Shop) -> str:
    name = await ordered(stage)
    await while_a_call_runs(stage, shop, lambda store: pause(store, name, stage.now))
    assert (await stage.store.get(name)).instance.paused
    await stage.person(lambda store: pause(store, name, stage.now, paused=False))
    await stage.run(name)
    return name


async def failed_and_retried(stage: Stage, shop: Shop) -> str:
    shop.stock = False
    name = await ordered(stage)
    await stage.run(name)
    shop.stock = True

    async def again(store: TaskStore) -> bool:
        try:
            await retry(store, name, stage.now)
        except CannotRetryError:
            # The action was done before the process died.
            assert (await store.get(name)).instance.status.round == 1
        return True

    await stage.person(again)
    await stage.run(name)
    return name


PAID, SHIPPED, REFUNDED = "method order 0", "method order 1", "reverse order 0"
SCENARIOS: dict[str, tuple[Callable[[Stage, Shop], Awaitable[str]], bool, list[str]]] = {
    "delivered": (delivered, True, [PAID, SHIPPED, "method letter 0"]),
    "renewed": (renewed, True, [PAID, SHIPPED]),
    "canceled between calls": (canceled_between_calls, False, [PAID, REFUNDED]),
    "canceled in a call": (canceled_in_a_call, False, [PAID, REFUNDED]),
    "paused in a call": (paused_in_a_call_and_resumed, True, [PAID, SHIPPED]),
    "failed and retried": (failed_and_retried, True, [PAID, REFUNDED, PAID, SHIPPED]),
}


async def played(store: TaskStore, name: str, fate: Fate) -> tuple[Any, ...]:
    """Play a scenario on an emptied store; return its end."""
    await emptied(store)
    shop = Shop()
    shop.stage = Stage(store, shop.tasks, fate)
    async with asyncio.timeout(180):
        return await ending(shop.stage, await SCENARIOS[name][0](shop.stage, shop))


async def emptied(store: TaskStore) -> None:
    async with store.engine.begin() as connection:
        for table in ("history", "instances", "definitions"):
            await connection.exec_driver_sql(f"DELETE FROM activitypool_{table}")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_end_is_the_same_whichever_write_a_process_dies_at(store: TaskStore, name: str) -> None:
    without_deaths = Fate()
    ended = await played(store, name, without_deaths)
    _, success, effects = SCENARIOS[name]
    assert (ended[:2], ended[-1]) == ((True, success), effects)

    fates = []
    for number, moment in itertools.product(range(1, without_deaths.writes + 1), MOMENTS):
        for last in ({number}, {number, number + 1}):
            fate = Fate(moment, frozenset(last))
            assert await played(store, name, fate) == ended, f"death {moment} write {sorted(last)}"
            # A very short lease is renewed as time passes: the run without deaths may have made one write more.
            assert fate.deaths or fate.spared or (name == "renewed" and fate.writes < number)
            fates.append(fate)
    # A death must have struck at most of the writes that every run makes.
    assert sum(bool(fate.deaths or fate.spared) for fate in fates) > 0.75 * len(fates)


@pytest.mark.parametrize(
    ("task", "troubles"),
    [
        ("strict", {"before": {"1": 1}, "after": {"2": 1}, "breaks": 3}),
        ("lenient", {"before": {"0": 1}, "after": {"3": 1}, "breaks": 2}),
    ],
)
async def test_errors_and_deaths_together_end_as_the_errors_alone(
    store: TaskStore, tmp_path: Path, task: str, troubles: dict[str, Any]
) -> None:
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    data = {**troubles, **{name: {**dict.fromkeys("0123", 0), **troubles[name]} for name in ("before", "after")}}
    stage = Stage(store, world.tasks(), Fate())
    number, deaths = 0, 1
    while deaths > 0:
        number += 1
        deaths = 0
        for moment in MOMENTS:
            name, fate = f"{moment}{number}", Fate(moment, frozenset({number}))
            stage.fate = fate

            async def new(store: TaskStore, name: str = name) -> str:
                await stage.tasks.sync(store)
                return await stage.tasks.new(store, task, data, instance_id=name)

            await stage.person(new)
            await stage.run(name)
            ended = (await store.get(name)).instance
            deaths += fate.deaths
            assert (ended.success, world.effects(name)) == expected(task, data), f"{moment} write {number}"
            assert [failure.error.code for failure in ended.status.failures] == ["Broken"]
            assert set(ended.data["worked"]) == {effect[-1] for effect in world.effects(name) if "method" in effect}
    assert number > 12
