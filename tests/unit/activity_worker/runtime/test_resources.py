"""Resources, hooks and middleware of a registry: when each runs, what it gets, and what happens when it fails."""

import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from activity_worker import Activities, Context, MemorySource, Slot, TaskFailed
from activity_worker.errors import HandlerSignatureError
from activity_worker.handlers.table import HandlerTable
from activity_worker.runtime.call_chain import MiddlewareError
from activity_worker.runtime.lifespan import ResourceError
from activity_worker.testing import ActivityEnvironment


class Pool:
    """A resource's type."""


async def run(app: Activities, value: Any = None) -> Any:
    return await ActivityEnvironment().run(app, value)


async def test_resources_open_before_tasks_and_close_after_the_last() -> None:
    app, seen = Activities(), []

    @app.resource
    async def pool() -> AsyncIterator[Pool]:
        seen.append("pool opens")
        yield Pool()
        seen.append("pool closes")

    @app.resource
    def table(pool: Pool) -> Iterator[str]:
        seen.append("table opens")
        yield f"table of {type(pool).__name__}"
        seen.append("table closes")

    @app.on_start
    def warm(table: Any) -> None:
        seen.append(f"start with {table}")

    @app.on_stop
    async def leave(anything: Pool) -> None:
        seen.append("stop")

    @app.activity(name="memory")
    async def handle(job: int, by_type: Pool, table) -> str:  # type: ignore[no-untyped-def]
        seen.append(f"task {job}")
        return f"{type(by_type).__name__}, {table}"

    source = MemorySource()
    first, second = source.put("1"), source.put("2")
    slot = Slot(source, app)
    await slot.start()
    outputs = [(await source.concluded(token)).output for token in (first, second)]
    await slot.stop(abort_polls=True)

    assert outputs == ['"Pool, table of Pool"'] * 2
    assert seen == [
        "pool opens",
        "table opens",
        "start with table of Pool",
        "task 1",
        "task 2",
        "stop",
        "table closes",
        "pool closes",
    ]


async def test_plain_resource_belongs_to_the_thread_of_plain_handlers() -> None:
    app = Activities()

    @app.resource
    def database() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(":memory:")  # usable in the thread that made it only
        yield connection
        connection.close()

    @app.activity
    def handle(job: int, database: sqlite3.Connection) -> int:
        return int(database.execute("select ? + 1", (job,)).fetchone()[0])

    assert await run(app, 2) == 3


async def test_plain_resource_of_async_handlers_belongs_to_the_event_loop() -> None:
    app = Activities()

    @app.resource
    def thread() -> Iterator[int]:
        yield threading.get_ident()

    @app.activity
    async def handle(job: Any, thread: int) -> bool:
        return thread == threading.get_ident()

    assert await run(app) is True


def open_route() -> str:
    raise OSError("no route")


def fails(app: Activities, where: str) -> None:
    if where == "resource":

        @app.resource
        def broken() -> Iterator[int]:
            yield int(open_route())

    elif where == "start hook":

        @app.on_start
        async def broken_hook() -> None:
            raise OSError("no route")

    else:

        @app.resource
        async def empty() -> AsyncIterator[int]:
            if not app:
                yield 1


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("resource", "the resource broken: OSError: no route"),
        ("start hook", "the start hook broken_hook: OSError: no route"),
        ("nothing", "the resource empty: it yields nothing; let it yield the resource"),
    ],
)
async def test_failed_start_names_the_function_and_closes_what_is_open(where: str, words: str) -> None:
    app, closed = Activities(), []

    @app.resource
    def first() -> Iterator[int]:
        yield 1
        closed.append("first")

    @app.activity(name="memory")
    async def handle(job: Any) -> None: ...

    fails(app, where)
    slot = Slot(MemorySource(), app)
    with pytest.raises(ResourceError) as caught:
        await slot.start()

    assert str(caught.value) == words
    assert closed == ["first"]


async def test_error_of_a_closing_resource_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    app, closed = Activities(), []

    @app.resource
    def first() -> Iterator[int]:
        yield 1
        closed.append("first")

    @app.resource
    async def second() -> AsyncIterator[int]:
        yield 2
        raise OSError("gone")

    @app.resource
    def third() -> Iterator[int]:
        yield 3
        yield 4

    @app.on_stop
    def broken() -> None:
        raise OSError("gone, too")

    app.activity(_nothing)
    with caplog.at_level(logging.ERROR):
        await run(app)

    assert closed == ["first"]
    assert [record.getMessage() for record in caplog.records] == [
        "the stop hook broken failed",
        "the resource third yields twice; what follows its second yield does not run",
        "the resource second could not be closed",
    ]


async def _nothing(job: Any) -> str:
    return "output"


async def test_middleware_is_around_the_call_with_the_first_outermost() -> None:
    app, seen = Activities(), list[str]()

    @app.resource
    def log() -> Iterator[list[str]]:
        yield seen

    @app.middleware
    async def outer(ctx: Context, log: list[str]) -> AsyncIterator[None]:
        log.append(f"outer of {len(ctx.lease)}")
        output = yield
        log.append(f"outer got {output}")

    @app.middleware
    async def inner(request) -> AsyncIterator[None]:  # type: ignore[no-untyped-def]
        seen.append(f"inner of {request.input}")
        yield
        seen.append("inner ends")

    @app.activity
    def handle(job: int) -> int:
        seen.append("handler")
        return job * 2

    assert await run(app, 4) == 8
    assert seen == ["outer of 32", "inner of 4", "handler", "inner ends", "outer got 8"]


async def test_middleware_sees_the_exception_and_cannot_swallow_it() -> None:
    app, seen = Activities(), list[str]()

    @app.middleware
    async def swallows() -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))

    @app.activity
    async def handle(job: Any) -> None:
        raise ValueError("no such picture")

    with pytest.raises(ValueError, match="no such picture"):
        await run(app)
    assert seen == ["no such picture"]


async def test_middleware_can_replace_the_exception() -> None:
    app = Activities()

    @app.middleware
    async def renames() -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            raise TaskFailed("Picture.Missing", "renamed") from error

    @app.activity
    def handle(job: Any) -> None:
        raise ValueError("no such picture")

    with pytest.raises(TaskFailed, match="renamed") as caught:
        await run(app)
    assert caught.value.error == "Picture.Missing"


async def test_middleware_sees_an_input_that_does_not_fit() -> None:
    app, seen = Activities(), list[str]()

    @app.middleware
    async def counts() -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    @app.activity
    def handle(job: int) -> None: ...

    with pytest.raises(Exception, match="expected a whole number"):
        await run(app, "text")
    assert seen == ["InputInvalidError"]


async def test_traceback_leaves_middleware_out() -> None:
    app = Activities()

    @app.middleware
    async def outer() -> AsyncIterator[None]:
        yield

    @app.activity(name="memory")
    async def handle(job: Any) -> None:
        raise ValueError("no such picture")

    source = MemorySource()
    token = source.put("1")
    await Slot(source, app).run_once()
    cause = source.conclusions[token].cause

    assert "in handle" in cause
    assert "in outer" not in cause


async def no_yield() -> AsyncIterator[None]:
    for _ in range(0):
        yield


async def two_yields() -> AsyncIterator[None]:
    yield
    yield


@pytest.mark.parametrize(("middleware", "words"), [(no_yield, "does not yield"), (two_yields, "yields more than once")])
async def test_middleware_that_does_not_yield_once_fails_the_task(
    middleware: Callable[[], AsyncIterator[None]], words: str
) -> None:
    app = Activities()
    app.middleware(middleware)
    app.activity(_nothing)

    with pytest.raises(MiddlewareError, match=f"the middleware {middleware.__name__} {words}"):
        await run(app)


def test_wrong_functions_are_refused_where_they_are_added() -> None:
    app = Activities()

    def plain() -> None: ...

    with pytest.raises(ValueError, match=r"resource: .*plain.*: expected a generator function"):
        app.resource(plain)
    with pytest.raises(ValueError, match=r"middleware: .*plain.*: expected an async generator function"):
        app.middleware(plain)
    app.resource(two_yields)
    with pytest.raises(ValueError, match="name='two_yields': registered already"):
        app.resource(two_yields)


def test_unknown_parameters_of_hooks_and_resources_are_refused() -> None:
    app = Activities()
    app.activity(_nothing)

    @app.on_start
    def hook(later: Any) -> None: ...

    with pytest.raises(HandlerSignatureError, match=r"the start hook .*hook: the parameter 'later'.*: resource"):
        HandlerTable(app)


async def test_resource_with_the_name_of_an_annotated_input_leaves_the_input() -> None:
    app = Activities()

    @app.resource
    def job() -> Iterator[Pool]:
        yield Pool()

    @app.activity
    def handle(job: int) -> int:
        return job

    assert await run(app, 3) == 3
