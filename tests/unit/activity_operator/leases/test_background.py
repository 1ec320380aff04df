"""Background tasks: an error is logged when it happens, and without its text, which may name a payload."""

import asyncio
import gc
from typing import Any

import pytest

from activity_operator.leases.background import BackgroundTasks


async def test_error_that_nobody_awaits_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
    background = BackgroundTasks()

    async def remove_record() -> None:
        raise ValueError("the payload of a task")

    await asyncio.wait({background.spawn(remove_record())})
    await asyncio.sleep(0)
    gc.collect()

    assert "remove_record failed: ValueError" in caplog.text
    assert "payload" not in caplog.text
    assert unretrieved == []


async def test_canceled_task_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    background = BackgroundTasks()
    task = background.spawn(asyncio.Event().wait())

    await background.stop(0.0)

    assert task.cancelled()
    assert not caplog.records
