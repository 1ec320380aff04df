"""A worker with the libraries of the slim image: what it runs, and what it refuses."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from activity_worker.config.settings import HANDLER_PYTHON
from activity_worker.testing.stepfunctions import FakeSettings, StepFunctionsFake

from .process import ROOT
from .user_environment import SLIM_LIBRARIES


async def start(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    """Start `activity-worker` with the slim image's libraries, and variables as the image has them."""
    python = str(SLIM_LIBRARIES.find() / "bin" / "python")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "ACTIVITY_", "POD_"))}
    clean |= {"PYTHONPATH": str(ROOT / "worker_image"), HANDLER_PYTHON: python}
    clean |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return await asyncio.create_subprocess_exec(
        *(python, "-m", "activity_worker", *arguments), env=clean, cwd=folder, stderr=asyncio.subprocess.PIPE
    )


async def test_worker_without_the_libraries_of_steps_runs_tasks(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("def handle(job):\n    return {'twice': 2 * job['n']}\n")
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=1.0)) as fake:
        arn = fake.create_activity("work")
        (task,) = fake.schedule(arn, '{"n": 21}')
        running = await start(tmp_path, "run", "--activity-arn", arn, "--endpoint-url", fake.url)
        try:
            await fake.until(lambda: task.ended_at is not None)
            running.terminate()
            await running.communicate()
        finally:
            if running.returncode is None:
                running.kill()

    assert json.loads(task.output) == {"twice": 42}
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("steps", "list"), "steps"),
        (("broker",), "broker"),
        (("run", "--store-url", "postgresql://shop@db.example.com/shop"), "a task store"),
        (("run", "--taskbroker", "broker.example.com:50051"), "a taskbroker"),
    ],
)
async def test_what_the_slim_image_lacks_names_the_other_image(
    tmp_path: Path, command: tuple[str, ...], what: str
) -> None:
    running = await start(tmp_path, *command)
    _, said = await running.communicate()

    needs, fix = "needs packages that are not installed", "build on the worker's image without VARIANT=-slim"
    assert (running.returncode, said.decode()) == (2, f"activity-worker: {what} {needs}: {fix}\n")
