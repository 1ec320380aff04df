"""A cancel is kept, whatever the instance does when it comes."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from activity_worker.steps import FinalError, RunnerOptions, Task, Tasks, TaskStore, step
from activity_worker.steps.cli import text
from activity_worker.steps.runner.runner import Runner
from activity_worker.steps.runner.tasks import cancel
from tests.clock import Clock


class Payments:
    """A task of two steps, `reserve` and `pay`, whose effects are in a list; `paying` and `telling` can be replaced."""

    def __init__(self, store: TaskStore, clock: Clock, **pay: Any) -> None:
        self.store, self.clock = store, clock
        self.effects: list[str] = []
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self.check: Callable[[], Any] = lambda: None
        self.paying: Callable[[], Awaitable[None]] = self._pays
        self.telling: Callable[[], Awaitable[None]] = self._tells
        task = Task("order", [step("reserve", reverse="release"), step("pay", reverse="refund", **pay)])
        for name in ("reserve", "release", "refund"):
            task.methods[name] = functools.partial(self._effect, name)
        task.methods |= {"pay": lambda _: self.paying(), "tell": lambda _: self.telling()}
        task.methods["was_paid"] = lambda _: self.check()
        self.tasks = Tasks([task], clock=clock)

    async def start(self) -> tuple[str, Runner]:
        """Create an instance; return its id and a runner."""
        await self.tasks.sync(self.store)
        return await self.tasks.new(self.store, "order"), self.tasks.runner(self.store, RunnerOptions("r1"))

    async def state(self, name: str) -> str:
        """Return in one word how an instance stands."""
        return text.state(await self.store.get(name))

    async def canceled_during_the_call(self) -> str:
        """Run an instance and cancel it while a call waits in `waits`; return the instance's id."""
        name, runner = await self.start()
        running = asyncio.create_task(runner.run_due())
        await self.inside.wait()
        asked = await cancel(self.store, name, now=self.clock.now)
        assert text.state(asked) == "canceling"
        self.go_on.set()
        await running
        await runner.run_due()
        return name

    async def waits(self) -> None:
        """Have the effect, and wait until the test goes on."""
        await self._pays()
        self.inside.set()
        await self.go_on.wait()

    def _effect(self, name: str, _: dict[str, Any]) -> None:
        self.effects.append(name)

    async def _pays(self) -> None:
        self.effects.append("pay")

    async def _tells(self) -> None:
        self.effects.append("tell")


REVERSED = ["reserve", "pay", "refund", "release"]


async def test_cancel_during_the_last_call_reverses_it(store: TaskStore, clock: Clock) -> None:
    payments = Payments(store, clock)
    payments.paying = payments.waits
    name = await payments.canceled_during_the_call()

    assert (payments.effects, await payments.state(name)) == (REVERSED, "canceled")
    wishes = [one for one in await store.history(name) if "Canceled" in str(one.status["failures"])]
    assert wishes[0].status["subStep"] == "reverse"


async def test_cancel_before_the_last_steps_check_reverses_the_step(store: TaskStore, clock: Clock) -> None:
    payments = Payments(store, clock, retry={"delays": [30]}, check="was_paid")

    async def pays_and_fails() -> None:
        payments.effects.append("pay")
        raise RuntimeError("the answer did not arrive")

    payments.paying, payments.check = pays_and_fails, lambda: True
    name, runner = await payments.start()
    await runner.run_due()
    await cancel(store, name, now=clock.now)
    await runner.run_due()

    assert (payments.effects, await payments.state(name)) == (REVERSED, "canceled")


async def test_cancel_during_an_error_method_that_handles_is_kept(store: TaskStore, clock: Clock) -> None:
    payments = Payments(store, clock, error="tell")

    async def refuses() -> None:
        raise FinalError("NoMoney", "the card is empty")

    payments.paying, payments.telling = refuses, payments.waits
    name = await payments.canceled_during_the_call()

    assert (payments.effects, await payments.state(name)) == (["reserve", "pay", "release"], "canceled")


@pytest.mark.parametrize("error", [{}, {"error": "tell"}])
async def test_canceled_instance_with_an_effect_in_doubt_has_failed(
    store: TaskStore, clock: Clock, error: dict[str, str]
) -> None:
    payments = Payments(store, clock, retry={"delays": [30]}, check="was_paid", **error)

    async def pays_and_fails() -> None:
        payments.effects.append("pay")
        raise RuntimeError("the answer did not arrive")

    def fails() -> None:
        raise FinalError("BankClosed", "no answer")

    payments.paying, payments.check = pays_and_fails, fails
    name, runner = await payments.start()
    await runner.run_due()
    await cancel(store, name, now=clock.now)
    await runner.run_due()

    told = ["tell"] if error else []
    assert (payments.effects, await payments.state(name)) == (["reserve", "pay", *told, "release"], "failed")
    assert (await store.get(name)).instance.status.failures[0].in_doubt
