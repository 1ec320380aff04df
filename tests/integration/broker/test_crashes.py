"""A broker that dies before, within and after each write: the next one on the store goes on, and nothing is lost."""

import ast
from pathlib import Path

import pytest

import activity_worker.taskbroker
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import TaskFilter
from tests.clock import Clock
from tests.integration.broker.conftest import POLICY
from tests.integration.broker.story import AT_MOST_ONCE, LETTERS, RUNS, Story
from tests.integration.steps.crash_simulation import CrashError, CrashingTransactions, CrashPlan, Moment
from tests.unit.activity_worker.taskbroker.activations import NOW, pending

#: Writes of the story without a crash.
WRITES = 40
#: Writes of brokers with Kafka, of those that push, and of those whose caller has gone. They have tests of their own.
OTHER_MODULES = {"claims", "outbox", "positions"}
OTHER_FUNCTIONS = {"BrokerStore.upkeep_of", "BrokerStore.give_back"}
PACKAGE = Path(activity_worker.taskbroker.__file__).parent


@pytest.fixture
async def tables(url: str) -> str:
    """The URL of a store whose tables are there, so that opening it again takes no time."""
    await (await BrokerStore.open(url)).close()
    return url


async def test_broker_without_a_crash(tables: str) -> None:
    story = Story(tables)
    await story.run()
    letters = await story.letters()
    await story.close()
    assert story.runs == RUNS
    assert letters == LETTERS
    # The next tests end the broker at each of these writes.
    assert story.plan.writes == WRITES
    assert [step for step in UpkeepStep if not story.moved[step]] == []
    # A function that writes to the store and is not in the story is to be added to it.
    assert set(story.writers) == writing_functions()


def writing_functions() -> set[str]:
    """Return the functions of the package that write to a store, by their qualified names."""
    found: set[str] = set()

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Attribute(attr="write" | "single", value=ast.Attribute(attr="transactions")):
                    found.add(".".join(names))
            inner = names
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = (*names, child.name)
            visit(child, inner)

    for module in PACKAGE.rglob("*.py"):
        if module.stem not in OTHER_MODULES:
            visit(ast.parse(module.read_text(encoding="utf-8")), ())
    return found - OTHER_FUNCTIONS


# In parts, because every test has a time limit, and the machine may be busy.
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_broker_dies_at_each_write(tables: str, moment: Moment, part: int) -> None:
    for write in range(1 + part, WRITES + 1, 5):
        # Later than the stories before: the store keeps the ids of their tasks for a while.
        story = Story(tables, CrashPlan(moment, frozenset([write])), clock=Clock(NOW + write * 10_000))
        await story.run()
        letters = await story.letters()
        await story.close()
        where = f"{moment} write {write}, {story.writers[write - 1]}: {dict(story.runs)}, {letters}"
        assert story.plan.crashes == 1, where
        check(story, letters, where)


@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_broker_dies_while_it_gives_a_task_back(tables: str, moment: Moment) -> None:
    clock = Clock(NOW)
    store = await BrokerStore.open(tables, POLICY, clock=clock)
    await store.add([pending()])
    _, given = await store.exchange([], TaskFilter(), 1)
    store.transactions = CrashingTransactions(store.transactions, CrashPlan(moment, frozenset([1])))
    with pytest.raises(CrashError):
        await store.give_back(given)
    await store.close()

    successor = await BrokerStore.open(tables, POLICY, clock=clock)
    clock.now += 3600.0
    await successor.upkeep(UpkeepStep.PASS_DEADLINES)
    _, again = await successor.exchange([], TaskFilter(), 1)
    await successor.close()
    # An attempt that was not given back counts, also when no worker received the task.
    assert [one.attempt for one in again] == [given[0].attempt + (moment != "after")]


def check(story: Story, letters: dict[str, str], where: str) -> None:
    """Judge a story in which one task at most was given out without its worker hearing of it."""
    unheard = 0
    for name, runs in RUNS.items():
        if name in AT_MOST_ONCE or name == "hopeless":
            # The attempt counts all the same: it is its last one sooner.
            assert story.runs[name] in {runs, runs - 1}, where
            unheard += runs - story.runs[name]
        else:
            # It came again after its deadline, without a retry.
            assert story.runs[name] == runs, where
    assert unheard <= 1, where
    once_unheard = {"once": "deadline"} if story.runs["once"] == 0 else {}
    assert letters == LETTERS | once_unheard, where
