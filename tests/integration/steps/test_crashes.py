"""A process dies before, within or after any write to the store: the instance ends as without the death."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from activity_worker.steps import FinalError, Task, Tasks, TaskStore, current, step
from activity_worker.steps.model.transitions import CannotRetryError
from activity_worker.steps.runner.tasks import cancel, pause, resume, retry
from tests.integration.steps.crash_simulation import CrashPlan, CrashSimulation, Moment, ending
from tests.integration.steps.effect_files import EffectFiles, expected

#: The process dies at each write of a scenario in turn.
pytestmark = pytest.mark.timeout(400)

Scenario = Callable[[CrashSimulation], Awaitable[str]]
MOMENTS: tuple[Moment, ...] = ("before", "within", "after")
SURE: dict[str, Any] = {"retry": {"retries": 9, "delays": [1]}, "check": "was_done"}


class Shop:
    """Orders whose effects are recorded outside of the store, each with a check; a call may wait for an action."""

    def __init__(self) -> None:
        self.simulation: CrashSimulation | None = None
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
        methods = {"pay": self.pay, "refund": self.effect, "was_done": self.done}
        payment = Task("payment", [step("pay", reverse=reverse, **SURE)], methods=methods)
        self.tasks = Tasks([order, payment, Task("letter", ["write"], methods={"write": self.effect})])

    async def pay(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Pay; while the call runs, a test may act."""
        assert self.simulation is not None
        await self.effect(arguments)
        if self.waits:
            self.inside.set()
            await self.go_on.wait()
        if self.renews:
            await self.simulation.renewals(2)
        return {"paid": True}

    async def ship(self, arguments: dict[str, Any]) -> None:
        """Ship, or fail because nothing is left."""
        if not self.stock:
            raise FinalError("OutOfStock", "the last one has gone")
        await self.effect(arguments)

    async def effect(self, _: dict[str, Any]) -> None:
        """Have the effect of the step."""
        assert self.simulation is not None
        self.simulation.effect(current().key, f"{current().sub_step} {current().task_name} {current().step_num}")

    async def done(self, _: dict[str, Any]) -> Any:
        """Return whether the effect happened; the output `paid` was lost with the call's answer and is unused."""
        assert self.simulation is not None
        return True if current().key in self.simulation.effects else None


async def ordered(simulation: CrashSimulation, task: str = "order") -> str:
    async def order(store: TaskStore) -> str:
        await simulation.tasks.sync(store)
        return await simulation.tasks.new(store, task, {"paid": True}, instance_id="mine")

    return await simulation.person(order)


async def delivered(simulation: CrashSimulation, shop: Shop) -> str:
    name = await ordered(simulation)
    await simulation.run(name)
    await simulation.run((await simulation.store.get(name)).instance.data["letter"])
    return name


async def renewed(simulation: CrashSimulation, shop: Shop) -> str:
    shop.renews = True
    name = await ordered(simulation)
    await simulation.run(name, lease_seconds=0.1)
    return name


async def canceled_between_calls(simulation: CrashSimulation, shop: Shop) -> str:
    name = await ordered(simulation)
    await simulation.run(name, calls=1)
    await simulation.person(lambda store: cancel(store, name, now=simulation.now))
    await simulation.run(name)
    return name


async def while_a_call_runs(
    simulation: CrashSimulation, shop: Shop, act: Callable[[TaskStore], Awaitable[Any]]
) -> None:
    """Act while the first call runs; if a runner died before that call, do not wait for it."""
    shop.waits = True
    running = asyncio.ensure_future(simulation.run("mine"))
    await shop.inside.wait()
    await simulation.person(act)
    shop.waits = False
    shop.go_on.set()
    await running


async def canceled_in_a_call(simulation: CrashSimulation, shop: Shop) -> str:
    name = await ordered(simulation)
    await while_a_call_runs(simulation, shop, lambda store: cancel(store, name, now=simulation.now))
    return name


async def canceled_in_the_last_call(simulation: CrashSimulation, shop: Shop) -> str:
    name = await ordered(simulation, "payment")
    await while_a_call_runs(simulation, shop, lambda store: cancel(store, name, now=simulation.now))
    return name


async def paused_in_a_call_and_resumed(simulation: CrashSimulation, shop: Shop) -> str:
    name = await ordered(simulation)
    await while_a_call_runs(simulation, shop, lambda store: pause(store, name, now=simulation.now))
    assert (await simulation.store.get(name)).instance.paused
    await simulation.person(lambda store: resume(store, name, now=simulation.now))
    await simulation.run(name)
    return name


async def failed_and_retried(simulation: CrashSimulation, shop: Shop) -> str:
    shop.stock = False
    name = await ordered(simulation)
    await simulation.run(name)
    shop.stock = True

    async def again(store: TaskStore) -> bool:
        try:
            await retry(store, name, now=simulation.now)
        except CannotRetryError:
            # The action was done before the process died.
            assert (await store.get(name)).instance.status.round == 1
        return True

    await simulation.person(again)
    await simulation.run(name)
    return name


PAID, SHIPPED, REFUNDED = "method order 0", "method order 1", "reverse order 0"
SCENARIOS: dict[str, tuple[Callable[[CrashSimulation, Shop], Awaitable[str]], bool, list[str]]] = {
    "delivered": (delivered, True, [PAID, SHIPPED, "method letter 0"]),
    "renewed": (renewed, True, [PAID, SHIPPED]),
    "canceled between calls": (canceled_between_calls, False, [PAID, REFUNDED]),
    "canceled in a call": (canceled_in_a_call, False, [PAID, REFUNDED]),
    "canceled in the last call": (
        canceled_in_the_last_call,
        False,
        ["method payment 0", "reverse payment 0"],
    ),
    "paused in a call": (paused_in_a_call_and_resumed, True, [PAID, SHIPPED]),
    "failed and retried": (failed_and_retried, True, [PAID, REFUNDED, PAID, SHIPPED]),
}


async def ended_scenario(store: TaskStore, name: str, plan: CrashPlan) -> tuple[Any, ...]:
    """Play a scenario on an emptied store; return its end."""
    await emptied(store)
    shop = Shop()
    shop.simulation = CrashSimulation(store, shop.tasks, plan)
    async with asyncio.timeout(180):
        return await ending(shop.simulation, await SCENARIOS[name][0](shop.simulation, shop))


async def emptied(store: TaskStore) -> None:
    async with store.engine.begin() as connection:
        for table in ("history", "instances", "definitions"):
            await connection.exec_driver_sql(f"DELETE FROM activitypool_{table}")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_end_is_the_same_whichever_write_a_process_dies_at(store: TaskStore, name: str) -> None:
    without_crashes = CrashPlan()
    ended = await ended_scenario(store, name, without_crashes)
    _, success, effects = SCENARIOS[name]
    assert (ended[:2], ended[-1]) == ((True, success), effects)

    plans = []
    # A second death in a row meets the runner's code only, which is the same on each database.
    in_a_row = (1, 2) if store.engine.dialect.name == "sqlite" else (1,)
    for number, moment in itertools.product(range(1, without_crashes.writes + 1), MOMENTS):
        for last in (set(range(number, number + deaths)) for deaths in in_a_row):
            plan = CrashPlan(moment, frozenset(last))
            assert await ended_scenario(store, name, plan) == ended, f"crash {moment} write {sorted(last)}"
            # A very short lease is renewed as time passes: the run without crashes may have made one write more.
            assert plan.crashes or plan.spared or (name == "renewed" and plan.writes < number)
            plans.append(plan)
    # A crash must have happened at most of the writes that every run makes.
    assert sum(bool(plan.crashes or plan.spared) for plan in plans) > 0.75 * len(plans)


@pytest.mark.parametrize(
    ("task", "errors"),
    [
        ("strict", {"before": {"1": 1}, "after": {"2": 1}, "breaks": 3}),
        ("lenient", {"before": {"0": 1}, "after": {"3": 1}, "breaks": 2}),
    ],
)
async def test_errors_and_deaths_together_end_as_the_errors_alone(
    store: TaskStore, tmp_path: Path, task: str, errors: dict[str, Any]
) -> None:
    (tmp_path / "files").mkdir()
    files = EffectFiles(tmp_path / "files")
    data = {
        **errors,
        **{name: {**dict.fromkeys("0123", 0), **errors[name]} for name in ("before", "after")},
    }
    simulation = CrashSimulation(store, files.tasks(), CrashPlan())
    number, crashes = 0, 1
    while crashes > 0:
        number += 1
        crashes = 0
        for moment in MOMENTS:
            name, plan = f"{moment}{number}", CrashPlan(moment, frozenset({number}))
            simulation.plan = plan

            async def new(store: TaskStore, name: str = name) -> str:
                await simulation.tasks.sync(store)
                return await simulation.tasks.new(store, task, data, instance_id=name)

            await simulation.person(new)
            await simulation.run(name)
            ended = (await store.get(name)).instance
            crashes += plan.crashes
            assert (ended.success, files.effects(name)) == expected(task, data), f"{moment} write {number}"
            assert [failure.error.code for failure in ended.status.failures] == ["Broken"]
            assert set(ended.data["worked"]) == {effect[-1] for effect in files.effects(name) if "method" in effect}
    assert number > 12
