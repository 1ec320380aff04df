"""Files and libraries of the user change neither the supervisor nor what the handler's process needs of the runtime."""

import json
import sys
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from activity_worker import subprocess
from activity_worker.contract import EXIT_USAGE
from activity_worker.testing import FakeSettings, StepFunctionsFake
from tests.servers.ports import free_port

from .process import metric, probe, worker
from .user_environment import USER_LIBRARIES

#: How the image starts the supervisor (worker_image/Dockerfile).
ISOLATED = ("-Iu",)
HANDLER = """
import csv, os, queue
import helper

def handle(request):
    folders = {os.path.basename(os.path.dirname(module.__file__)) for module in (csv, queue)}
    return {"helper": helper.NAME, "folders": list(folders), "file": __file__}
"""
NEIGHBOURS = """
import errors, main, process, protocol, runner, session

def handle(request):
    return [module.OWNER for module in (errors, main, process, protocol, runner, session)]
"""
OLD_LIBRARIES = """
import aiohttp, botocore, importlib.metadata, multiprocessing
from activity_worker import activity

def double(number):
    return 2 * number

def handle(request):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doubled = pool.map(double, [21])
    return {
        "aiohttp": aiohttp.__version__,
        "botocore": botocore.__version__,
        "prometheus": importlib.metadata.version("prometheus-client"),
        "doubled": doubled,
        "input": activity.info().input,
    }
"""
REGION = """
import boto3, os

def handle(request):
    session = boto3.Session()
    client = session.client("sqs")  # S3 has a region without any setting
    keys = session.get_credentials().get_frozen_credentials()
    return {"region": client.meta.region_name, "key": keys.access_key, "path": os.environ.get("PYTHONPATH")}
"""


@pytest.fixture
async def fake() -> AsyncIterator[StepFunctionsFake]:
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=1.0)) as fake:
        yield fake


async def output_of(fake: StepFunctionsFake, folder: Path, *more: str, env: dict[str, str] | None = None) -> Any:
    """Run `handler.py` of `folder` on one task as the image does, and return its output."""
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, '{"n": 1}')
    command = ("run", "handler:handle", "--activity-arn", arn, "--endpoint-url", fake.url, *more)
    found = {"PYTHONPATH": str(folder)} | (env or {})
    async with worker(*command, env=found, python=ISOLATED, folder=folder) as running:
        await fake.until(lambda: task.ended_at is not None)
        assert [line for line in running.lines if "hostile" in line] == []
    assert task.state == "succeeded", task.cause
    return json.loads(task.output)


def hostile_names() -> set[str]:
    """Every module of the standard library, of the runtime's libraries, and the runtime itself."""
    libraries = {"aiohttp", "botocore", "hiredis", "prometheus_client", "sqlalchemy", "uvloop", "yarl", "multidict"}
    return set(sys.stdlib_module_names) | libraries | {"activity_worker", "sitecustomize", "usercustomize"}


async def test_no_file_of_the_user_takes_the_place_of_a_module(fake: StepFunctionsFake, tmp_path: Path) -> None:
    for name in hostile_names():
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('hostile {name}')\n")
    (tmp_path / "helper.py").write_text("NAME = 'a helper'\n")
    (tmp_path / "handler.py").write_text(HANDLER)

    output = await output_of(fake, tmp_path)

    library = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert output == {"helper": "a helper", "folders": [library], "file": str(tmp_path / "handler.py")}


async def test_files_beside_the_runtimes_first_one_hide_no_module_of_the_user(
    fake: StepFunctionsFake, tmp_path: Path
) -> None:
    for name in ("errors", "main", "process", "protocol", "runner", "session"):
        assert (Path(subprocess.__file__).parent / f"{name}.py").exists()
        (tmp_path / f"{name}.py").write_text("OWNER = 'user'\n")
    (tmp_path / "handler.py").write_text(NEIGHBOURS)

    assert await output_of(fake, tmp_path) == ["user"] * 6


async def test_user_libraries_leave_those_of_the_runtime_alone(fake: StepFunctionsFake, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(OLD_LIBRARIES)
    port = free_port()
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, '{"n": 1}')
    python = str(USER_LIBRARIES.find() / "bin" / "python")
    command = ("run", "handler:handle", "--activity-arn", arn, "--endpoint-url", fake.url, "--health-port", str(port))
    env = {"PYTHONPATH": str(tmp_path), "ACTIVITY_HANDLER_PYTHON": python}

    async with worker(*command, env=env, python=ISOLATED, folder=tmp_path) as running:
        await fake.until(lambda: task.ended_at is not None)
        await running.line_with("task succeeded")
        _, page = await probe(port, "/metrics")

    output = json.loads(task.output)
    assert output["doubled"] == [42]
    assert output["input"] == {"n": 1}
    old = {name: tuple(map(int, output[name].split(".")[:2])) for name in ("aiohttp", "botocore", "prometheus")}
    assert old["aiohttp"] < (3, 12)
    assert old["botocore"] < (1, 40)
    assert old["prometheus"] < (0, 22)
    assert metadata.version("aiohttp") != output["aiohttp"]
    assert metric(page, 'activity_worker_tasks_total{outcome="succeeded"}') == 1


async def test_boto3_in_a_handler_finds_the_region_of_the_worker(fake: StepFunctionsFake, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(REGION)

    output = await output_of(fake, tmp_path)

    assert output == {"region": "us-east-1", "key": "test", "path": str(tmp_path)}


async def test_boto3_in_a_handler_keeps_its_own_default_region(fake: StepFunctionsFake, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(REGION)

    output = await output_of(fake, tmp_path, env={"AWS_DEFAULT_REGION": "eu-west-3"})

    assert output["region"] == "eu-west-3"


async def test_interpreter_that_does_not_exist_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "python3")
    arn = "arn:aws:states:us-east-1:123456789012:activity:work"
    async with worker("run", "--activity-arn", arn, "--handler-python", missing) as running:
        assert await running.exit_code() == EXIT_USAGE

    assert f"--handler-python={missing!r}: expected a Python interpreter" in "".join(running.lines)
