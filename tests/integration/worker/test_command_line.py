"""The commands of a day: `init`, `invoke`, `dev`, and Ctrl-C on a terminal, each as a person runs it."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import boto3
import pytest
import yaml

from activity_operator.api.spec import PoolSpec
from activity_worker.contract import EXIT_ERROR, EXIT_OK, EXIT_POLLING, EXIT_USAGE
from activity_worker.pytest_plugin import step_functions_fake
from activity_worker.testing import FakeInThread
from tests.eventually import eventually, eventually_sync

from .process import PATIENCE_SECONDS, ROOT

__all__ = ["step_functions_fake"]

HANDLER = """
from activity_worker import activity

def handle(request):
    print("the handler prints")
    activity.heartbeat({"at": 1})
    return {"twice": 2 * request.input["n"]}
"""
WAITS = """
import pathlib, subprocess, time

def handle(request):
    helper = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = pathlib.Path(request.input["started"])
    started.with_suffix(".new").write_text(str(helper.pid))
    started.with_suffix(".new").rename(started)
    time.sleep(600)
"""


def clean_environment() -> dict[str, str]:
    left_out = ("AWS_", "ACTIVITY_", "POD_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def run(folder: Path, *words: str, text: str = "", python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run `activity-worker` in a folder, with text on standard input."""
    command = [python, "-m", "activity_worker", *words]
    return subprocess.run(
        command, cwd=folder, input=text, env=clean_environment(), capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with what `init` writes."""
    done = run(tmp_path, "init", "greeter")
    assert done.returncode == EXIT_OK, done.stderr
    return tmp_path / "greeter"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "handler.py").write_text(HANDLER)
    return tmp_path


def test_project_of_init_passes_its_own_tests(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_project_of_init_runs_its_state_machine(project: Path, step_functions_fake: FakeInThread) -> None:
    arn = step_functions_fake.create_activity("greeter")
    definition = (project / "state_machine.json").read_text()
    client = boto3.client(
        "stepfunctions", endpoint_url=step_functions_fake.url, region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    machine = client.create_state_machine(
        name="greeter", definition=definition, roleArn="arn:aws:iam::123456789012:role/any"
    )
    execution = client.start_execution(stateMachineArn=machine["stateMachineArn"], input='{"name": "Ann"}')
    command = [sys.executable, "-m", "activity_worker", "run", "--activity-arn", arn]
    with subprocess.Popen(
        [*command, "--endpoint-url", step_functions_fake.url], cwd=project, env=clean_environment()
    ) as worker:
        try:
            step_functions_fake.wait_ended(step_functions_fake.tasks[0], PATIENCE_SECONDS)
            status = client.describe_execution(executionArn=execution["executionArn"])
        finally:
            worker.kill()

    assert (status["status"], json.loads(status["output"])) == ("SUCCEEDED", {"text": "Hello, Ann!"})
    state = json.loads(definition)["States"]["Greet"]
    assert state["HeartbeatSeconds"] >= 30
    assert "States.Timeout" in state["Retry"][0]["ErrorEquals"]


def test_project_of_init_has_a_valid_pool_and_an_image_of_its_files(project: Path) -> None:
    manifest = yaml.safe_load((project / "pool.yaml").read_text())
    dockerfile = (project / "Dockerfile").read_text()

    assert PoolSpec.model_validate(manifest["spec"]).max_workers == 10
    assert "FROM ${WORKER_IMAGE}" in dockerfile
    copied = [line.split()[1] for line in dockerfile.splitlines() if line.startswith("COPY")]
    assert all((project / name).exists() for name in copied)


@pytest.mark.parametrize(("words", "message"), [(("greeter",), "new or empty"), (("other", "No_Name"), "hyphens")])
def test_init_changes_nothing_that_is_there(project: Path, words: tuple[str, ...], message: str) -> None:
    done = run(project.parent, "init", *words)

    assert (done.returncode, message in done.stderr) == (EXIT_USAGE, True)
    assert [path.name for path in project.parent.iterdir()] == ["greeter"]


def test_invoke_finds_the_function_of_an_activity(folder: Path) -> None:
    (folder / "shop.py").write_text(
        "from activity_worker import Activities\napp = Activities()\n"
        "@app.activity(name='pack')\ndef pack(order: int) -> str: return f'packed {order}'\n"
        "@app.activity(name='send')\ndef send(order: int) -> str: return f'sent {order}'\n"
    )

    done = run(folder, "invoke", "shop:app", "7", "--activity", "send")

    assert json.loads(done.stdout) == "sent 7", done.stderr


@pytest.mark.parametrize("words", [("handler:handle", '{"n": 2}'), ('{"n": 2}',), ("handler:handle", "-"), ()])
def test_invoke_prints_the_output_and_nothing_else(folder: Path, words: tuple[str, ...]) -> None:
    done = run(folder, "invoke", *words, text='{"n": 2}')

    assert (done.returncode, json.loads(done.stdout)) == (EXIT_OK, {"twice": 4})
    assert "the handler prints" in done.stderr
    assert 'heartbeat: {"at": 1}' in done.stderr


def test_invoke_prints_the_traceback_of_a_failure(folder: Path) -> None:
    (folder / "input.json").write_text('{"m": 2}')

    done = run(folder, "invoke", "--input-file", "input.json")

    assert (done.returncode, done.stdout) == (EXIT_ERROR, "")
    assert "failed as KeyError: 'n'" in done.stderr
    assert done.stderr.count('return {"twice": 2 * request.input["n"]}') == 1


def test_invoke_shows_an_exception_after_the_answer(folder: Path) -> None:
    (folder / "late.py").write_text(
        "async def handle(request, respond):\n    await respond.success('kept')\n    raise RuntimeError('too late')\n"
    )

    done = run(folder, "invoke", "late:handle", "1")

    assert (done.returncode, json.loads(done.stdout)) == (EXIT_OK, "kept")
    assert "the handler raised after its task had ended: RuntimeError: too late" in done.stderr
    assert done.stderr.count("raise RuntimeError('too late')") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("handler:handle", "{n: 2}"), "the input is not JSON"),
        (("--input-file", "none.json"), "none.json: it cannot be read"),
        (("handler:handle", "1", "--input-file", "none.json"), "give one of them"),
        (("no handler", "1"), "expected module:function"),
    ],
)
def test_invoke_names_an_argument_that_it_cannot_use(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = run(folder, "invoke", *words)

    assert (done.returncode, message in done.stderr) == (EXIT_USAGE, True), done.stderr


def test_invoke_says_why_a_handler_cannot_be_imported(folder: Path) -> None:
    done = run(folder, "invoke", "missing:handle", "1")

    assert (done.returncode, f"no module named 'missing' in {folder}" in done.stderr) == (EXIT_ERROR, True), done.stderr


def test_dev_runs_piped_inputs_and_ends_with_them(folder: Path) -> None:
    (folder / "input.json").write_text('{"n": 5}')

    good = run(folder, "dev", text='{"n": 2}\n@input.json\n')
    bad = run(folder, "dev", text='{"m": 2}\n')

    assert good.returncode == EXIT_OK, good.stderr
    assert '"twice": 4' in good.stdout
    assert '"twice": 10' in good.stdout
    assert (bad.returncode, "failed as KeyError" in bad.stderr) == (EXIT_ERROR, True)


@pytest.fixture
async def dev(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`activity-worker dev` whose inputs do not end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "activity_worker", "dev"),
        cwd=folder,
        env=clean_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    yield process
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    await process.wait()


async def test_dev_reloads_a_handler_that_is_saved(folder: Path, dev: asyncio.subprocess.Process) -> None:
    assert dev.stdin is not None
    assert dev.stdout is not None

    async with asyncio.timeout(PATIENCE_SECONDS):
        dev.stdin.write(b'{"n": 2}\n')
        assert b'"twice": 4' in await dev.stdout.readuntil(b"}\n")
        (folder / "handler.py").write_text(HANDLER.replace("2 *", "20 *"))
        # The last input runs again by itself.
        assert b'"twice": 40' in await dev.stdout.readuntil(b"}\n")


async def test_second_interrupt_of_dev_leaves_no_worker_behind(dev: asyncio.subprocess.Process) -> None:
    assert dev.stdin is not None
    assert dev.stdout is not None
    assert dev.stderr is not None

    async with asyncio.timeout(PATIENCE_SECONDS):
        dev.stdin.write(b'{"n": 2}\n')
        await dev.stdout.readuntil(b"}\n")
        worker = only_child(dev.pid)
        os.kill(worker, signal.SIGSTOP)
        dev.send_signal(signal.SIGINT)
        await dev.stderr.readuntil(b"Ctrl-C again ends it at once")
        dev.send_signal(signal.SIGINT)
        await dev.wait()
    await eventually("the worker has ended", lambda: has_ended(worker))


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has this project and none of its extras."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(str(ROOT / "worker_image"))
    return str(home / "bin" / "python")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("run", "worker"),
        ("steps", "steps"),
        ("flows", "redis"),
        ("broker", "taskbroker"),
        ("dead-letters", "taskbroker"),
    ],
)
def test_missing_extra_is_named_with_its_installation(
    command: str, extra: str, bare_python: str, tmp_path: Path
) -> None:
    done = run(tmp_path, command, "ls", python=bare_python)

    assert done.returncode == EXIT_USAGE
    assert f"pip install 'activitypool[{extra}]'" in done.stderr


def test_fake_without_its_extra_names_the_installation(bare_python: str, tmp_path: Path) -> None:
    code = "from activity_worker.testing import StepFunctionsFake"
    done = subprocess.run([bare_python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "pip install 'activitypool[worker]'" in done.stderr


def test_environment_of_a_test_needs_no_extra(bare_python: str, tmp_path: Path) -> None:
    code = "from activity_worker.testing import ActivityEnvironment as E; print(E().run_sync(lambda request: 1))"
    done = subprocess.run([bare_python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout == "1\n", done.stderr


@contextlib.contextmanager
def worker_on_a_terminal(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`activity-worker run` with a terminal as its standard input."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "activity_worker", "run", *words, "--log-format", "text"]
    process = subprocess.Popen(
        command, cwd=folder, env=clean_environment(), stdin=theirs, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, ours
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(theirs)


def only_child(pid: int) -> int:
    """Return the process id of a process's one child."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone, or dead and not collected yet."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def test_second_interrupt_on_a_terminal_ends_the_worker_at_once(
    tmp_path: Path, step_functions_fake: FakeInThread
) -> None:
    (tmp_path / "handler.py").write_text(WAITS)
    started = tmp_path / "started"
    arn = step_functions_fake.create_activity("work")
    task = step_functions_fake.schedule(arn, json.dumps({"started": str(started)}))
    words = ("--activity-arn", arn, "--endpoint-url", step_functions_fake.url)
    with worker_on_a_terminal(tmp_path, *words) as (worker, _):
        eventually_sync("the handler has begun", started.exists)
        assert worker.stderr is not None
        worker.send_signal(signal.SIGINT)
        first = next(line for line in worker.stderr if "stopping" in line)
        assert "Ctrl-C again ends at once" in worker.stderr.readline()
        worker.send_signal(signal.SIGINT)
        code = worker.wait(PATIENCE_SECONDS)
        rest = worker.stderr.read()
    eventually_sync("what the handler has started has ended", lambda: has_ended(int(started.read_text())))

    assert "waiting for 0 open polls (up to a minute) and 1 task (up to 1800 s)" in first
    assert "ended at once: no answer for 1 running task until" in rest
    assert code == 130
    assert task.state == "started"


def test_worker_ends_after_as_many_failed_polls_as_asked(folder: Path) -> None:
    arn = "arn:aws:states:us-east-1:123456789012:activity:work"
    words = ("run", "--activity-arn", arn, "--endpoint-url", "http://127.0.0.1:9", "--poll-attempts", "1")

    assert run(folder, *words).returncode == EXIT_POLLING
