"""The event loop is given back between two reconciliations, and after a few milliseconds of them in one turn."""

import asyncio

from activity_operator.cluster.turn_budget import TurnBudget

LOOPS = 8


class Turns:
    """Reconcile loops whose work takes a fixed time of a clock, and the number of works in each turn of the loop."""

    def __init__(self, work_seconds: float, budget_seconds: float) -> None:
        self.now = 0.0
        self.work_seconds = work_seconds
        self.budget = TurnBudget(lambda: self.now, budget_seconds)
        self.in_turn = [0]

    async def reconcile(self, times: int) -> None:
        """Do one reconcile loop's work."""
        for _ in range(times):
            await self.budget.next_turn()
            self.budget.begin()
            self.now += self.work_seconds
            self.in_turn[-1] += 1

    async def run(self, times: int) -> list[int]:
        """Run all loops and return the number of works of each turn."""
        loops = [asyncio.create_task(self.reconcile(times)) for _ in range(LOOPS)]
        while not all(loop.done() for loop in loops):
            self.in_turn.append(0)
            await asyncio.sleep(0)
        return [count for count in self.in_turn if count]


async def test_each_loop_does_one_work_in_a_turn() -> None:
    assert max(await Turns(0.001, 1.0).run(20)) <= LOOPS


async def test_turn_ends_when_its_budget_is_used_up() -> None:
    counts = await Turns(0.005, 0.01).run(20)

    assert sum(counts) == LOOPS * 20
    assert max(counts) <= 3


async def test_work_longer_than_the_budget_is_done_once_in_a_turn() -> None:
    counts = await Turns(1.0, 0.01).run(5)

    assert sum(counts) == LOOPS * 5
    assert max(counts) == 1
