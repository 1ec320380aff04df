"""`activity-worker steps …` in a terminal, on the orders of the example."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from activity_worker import cli
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE
from tests.servers.postgres import execute

ORDERS = Path(__file__).parents[3] / "examples" / "orders"
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command; return its exit code, its output and its errors."""
    monkeypatch.setenv("ACTIVITY_STORE_URL", f"sqlite:///{tmp_path}/orders.db")
    monkeypatch.setenv("ORDERS_JOURNAL", str(tmp_path / "journal.jsonl"))
    monkeypatch.chdir(ORDERS)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["steps", *arguments])
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return run


def squeezed(text: str) -> list[str]:
    """Return lines with single spaces, and times replaced by WHEN."""
    return [re.sub(" +", " ", re.sub(MOMENT, "WHEN", line)).strip() for line in text.splitlines()]


@pytest.fixture
def orders(say: Say) -> None:
    """Run two orders: number 1 was delivered, number 2 was out of stock."""
    done = subprocess.run([sys.executable, "orders.py"], cwd=ORDERS, check=True, capture_output=True, text=True)
    assert done.stdout.count("succeeded") == 2


@pytest.mark.usefixtures("orders")
def test_example_fails_at_fulfilment_and_refunds(say: Say, tmp_path: Path) -> None:
    journal = (tmp_path / "journal.jsonl").read_text()
    did = [re.findall('"did": "(.*?)", "order": 2', line) for line in journal.splitlines()]

    assert [what for line in did for what in line] == ["mail: received", "captured", "mail: canceled", "refunded"]


@pytest.mark.usefixtures("orders")
def test_instances_steps_and_revisions_are_shown(say: Say) -> None:
    listed = squeezed(say("ls", "--limit", "1")[1])
    name = listed[1].split()[0]
    assert listed[0] == "ID TASK STATE STEP NEXT RUN AGE"
    assert re.fullmatch(rf"{name} order succeeded - - \d+s", listed[1])

    shown = squeezed(say("show", name)[1])
    assert shown[0] == f"{name} order succeeded"
    assert shown[3:] == [
        "STEP METHOD STATE CALLS BEGAN ENDED ERROR",
        "0 module.email.order_received done 1 method WHEN WHEN",
        "1 check_inventory done 1 method WHEN WHEN",
        "2 capture_payment reversed 1 method, 1 reverse WHEN WHEN",
        "3 fulfil failed 1 method, 1 error WHEN WHEN OutOfStock: the last samovar has gone",
        "4 module.email.order_shipped",
        "5 check_delivery",
        "6 module.email.order_delivered",
        "7 complete",
    ]
    history = squeezed(say("history", name)[1])
    assert history[0] == "REVISION AT RUNNER STEP SUB-STEP STATE DATA CHANGED ERROR"
    assert history[1] == "1 WHEN - 0 method waiting yes"
    assert history[5:7] == [
        "5 WHEN example 3 method running yes",
        "6 WHEN example 3 error running OutOfStock: the last samovar has gone",
    ]


def test_instance_is_created_paused_resumed_and_canceled(say: Say) -> None:
    order = ("new", "orders:tasks", "order", '{"number": 7, "item": "teapot"}', "--id", "seven")
    assert say(*order)[:2] == (0, "seven\n")
    assert say(*order)[:2] == (0, "seven\n")
    assert say("pause", "seven")[1] == "seven is paused\n"
    assert squeezed(say("ls")[1])[1].startswith("seven order paused 0 method - ")
    assert say("resume", "seven")[1] == "seven is waiting\n"
    assert say("cancel", "seven")[1] == "seven is canceled\n"
    assert squeezed(say("ls")[1])[1].startswith("seven order canceled - - ")
    for command in ("cancel", "pause", "resume"):
        words = f"activity-worker steps: instance seven was canceled already: there is nothing left to {command}\n"
        assert say(command, "seven") == (EXIT_ERROR, "", words)
    assert "Canceled: canceled" in say("show", "seven")[1]
    assert say("retry", "seven")[1] == "seven goes on from step 0\n"
    assert say("retry", "seven")[2].endswith("instance seven is not complete: only a failed one can be retried\n")
    assert say("ls", "--task", "delivery_exception")[1] == "no instances\n"
    assert len(squeezed(say("ls")[1])) == 2


NEW = ("new", "orders:tasks", "order")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "gone"), EXIT_ERROR, "there is no task instance 'gone'"),
        (("history", "gone"), EXIT_ERROR, "there is no task instance 'gone'"),
        (("retry", "gone"), EXIT_ERROR, "there is no task instance 'gone'"),
        (("new", "orders:tasks", "ordr"), EXIT_ERROR, "there is no task 'ordr'; there are delivery_exception, order"),
        (("new", "orders:tasks", "order", "{"), EXIT_USAGE, "the data is not JSON: "),
        (("new", "orders:tasks", "order", "[1]"), EXIT_USAGE, "the data is not a JSON object such as"),
        (("new", "orders:tasks", "order", "--id", "x" * 65), EXIT_USAGE, "an instance's id has 1 to 64 characters"),
        (("new", "gone:tasks", "order"), EXIT_USAGE, "'gone:tasks' cannot be loaded as module:tasks: No module named"),
        (("new", "", "order"), EXIT_USAGE, "'' cannot be loaded as module:tasks: Empty module name"),
        (("new", "orders:order", "order"), EXIT_USAGE, "'orders:order' is a Task; give a Tasks object"),
        (("run", "orders:tasks", "--slots", "0"), EXIT_USAGE, "slots is at least 1, not 0"),
        (("run", "orders:tasks", "--lease-seconds", "nan"), EXIT_USAGE, "lease_seconds is at least 0.1, not nan"),
        (
            ("ls", "--store", "mysql://host/db"),
            EXIT_ERROR,
            "a task store is a database at sqlite:///FILE or postgresql://",
        ),
        (
            ("ls", "--store", "secret words"),
            EXIT_ERROR,
            "a task store is a database at sqlite:///FILE or postgresql://",
        ),
        (
            ("run", "orders:tasks", "--health-port", "99999"),
            EXIT_USAGE,
            "--health-port is a number from 0 to 65535",
        ),
        (("ls", "--limit", "0"), EXIT_USAGE, "--limit is at least 1, not 0"),
        ((*NEW, "--in", "soon"), EXIT_USAGE, "--in: 'soon' is not a span of time with its unit, such as '12h'"),
        (("prune", "--older-than", "5"), EXIT_USAGE, "--older-than: '5' is not a span of time with its unit, such as"),
        (
            ("ls", "--store", "sqlite:////gone/x.db"),
            EXIT_USAGE,
            "there is no task store at /gone/x.db: correct",
        ),
        (
            (*NEW, "--store", "sqlite:////gone/x.db"),
            EXIT_ERROR,
            "the task store cannot be used: OperationalError: unable to open database file; its folder must be there",
        ),
        (
            ("ls", "--store", f"sqlite:///{ORDERS}/orders.py"),
            EXIT_ERROR,
            "the task store cannot be used: DatabaseError: file is not a database; correct the path",
        ),
        (
            ("ls", "--store", "postgresql://h:pw@127.0.0.1:1/x"),
            EXIT_ERROR,
            "the task store cannot be used: ConnectionRefusedError: [Errno 111] Connect call failed",
        ),
    ],
)
def test_impossible_command_is_refused_in_one_line(say: Say, arguments: tuple[str, ...], code: int, words: str) -> None:
    say(*NEW)
    answer, out, complaint = say(*arguments)

    assert (answer, out, complaint.count("\n")) == (code, "", 1)
    assert complaint.startswith(f"activity-worker steps: {words}")
    assert "secret" not in complaint
    assert "pw@" not in complaint


INSTANCE = {
    "id", "task", "version", "state", "paused", "cancelRequested", "nextRunTime", "revision", "runner", "created",
    "updated", "status",
}  # fmt: skip


def test_every_command_answers_in_json_of_one_form(say: Say) -> None:
    def data(*arguments: str) -> dict[str, Any]:
        code, out, complaint = say(*arguments, "--json")
        assert (code, complaint, out.count("\n")) == (0, "", 1)
        found: dict[str, Any] = json.loads(out)
        return found

    order = ("new", "orders:tasks", "order", '{"number": 7, "item": "teapot"}', "--id", "seven")
    assert set(data(*order)) == INSTANCE | {"isNew"}
    assert [data(*order)[name] for name in ("id", "isNew", "state")] == ["seven", False, "waiting"]
    listed = data("ls")["instances"]
    assert [set(one) for one in listed] == [INSTANCE]
    for command, state in (("pause", "paused"), ("resume", "waiting"), ("cancel", "canceled"), ("retry", "waiting")):
        changed = data(command, "seven")
        assert (set(changed), changed["state"]) == (INSTANCE, state)
    shown = data("show", "seven")
    assert set(shown) == INSTANCE | {"data", "steps"}
    assert shown["data"] == {"number": 7, "item": "teapot", "quantity": 1, "price": 20}
    step = {"stepNum": 3, "method": "fulfil", "state": "", "calls": {}, "began": None, "ended": None, "error": None}
    assert shown["steps"][3] == step
    history = data("history", "seven")
    assert set(history) == INSTANCE | {"revisions"}
    assert [one["revision"] for one in history["revisions"]] == list(range(1, shown["revision"] + 1))
    assert set(history["revisions"][0]) == {"revision", "at", "runner", "nextRunTime", "status", "data"}
    assert data("prune", "--older-than", "1d") == {"deleted": 0}

    code, out, complaint = say("show", "gone", "--json")
    assert (code, out, json.loads(complaint)) == (EXIT_ERROR, "", {"error": "there is no task instance 'gone'"})


def test_id_of_another_order_is_refused(say: Say) -> None:
    assert say(*NEW, '{"number": 7}', "--id", "seven")[0] == 0

    words = "activity-worker steps: instance seven was created with other arguments or another session: choose"
    code, out, complaint = say(*NEW, '{"number": 8}', "--id", "seven")
    assert (code, out, complaint.startswith(words)) == (EXIT_ERROR, "", True)


def test_missing_store_is_reported_with_the_way_to_name_one(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTIVITY_STORE_URL")

    words = "no task store: give --store, or set ACTIVITY_STORE_URL; for example sqlite:///tasks.db"
    assert say("ls") == (EXIT_USAGE, "", f"activity-worker steps: {words}\n")


def test_read_only_command_creates_no_store(say: Say, tmp_path: Path) -> None:
    for command in (("ls",), ("show", "x"), ("cancel", "x"), ("prune", "--older-than", "1d")):
        assert say(*command)[0] == EXIT_USAGE

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("raise RuntimeError('no warehouse')", "RuntimeError: no warehouse ({file}, line 1)"),
        ("1 +", "invalid syntax (broken_tasks.py, line 1)"),
    ],
)
def test_module_that_cannot_be_loaded_is_reported_with_its_place(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, words: str
) -> None:
    file = tmp_path / "broken_tasks.py"
    file.write_text(module)
    monkeypatch.chdir(tmp_path)

    message = f"'broken_tasks' cannot be loaded as module:tasks: {words.format(file=file)}"
    assert say("run", "broken_tasks") == (EXIT_USAGE, "", f"activity-worker steps: {message}\n")


def test_failed_open_of_a_store_leaves_no_thread_behind(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the asynchronous driver's thread once notified the event loop after it was closed."""
    stop = aiosqlite.Connection.stop
    failed: list[object] = []

    def late(connection: aiosqlite.Connection) -> object:
        connection._tx.put_nowait((None, lambda: time.sleep(0.3)))
        return stop(connection)

    monkeypatch.setattr(aiosqlite.Connection, "stop", late)
    monkeypatch.setattr(threading, "excepthook", lambda what: failed.append(what.exc_value))
    assert say(*NEW, "--store", "sqlite:////gone/x.db")[0] == EXIT_ERROR
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10.0)

    assert failed == []


def test_refusing_server_is_reported_with_the_fix(say: Say, server: str) -> None:
    asyncio.run(execute(server, "CREATE USER nobody_much PASSWORD 'x'"))
    mine = server.replace("test@", "nobody_much:x@")
    for url, words in (
        (f"{server}_gone", 'database "postgres_gone" does not exist; create the database, or correct its name'),
        (mine, "permission denied for schema public; grant the URL's user CREATE on it"),
        (f"{server}?sslmode=require", "rejected SSL upgrade; let the server speak TLS, or take sslmode out of the URL"),
    ):
        code, _, complaint = say("ls", "--store", url)
        assert (code, words in complaint, complaint.count("\n")) == (EXIT_ERROR, True, 1), complaint


def test_instance_may_start_later(say: Say) -> None:
    assert say(*NEW, "--in", "3d")[0] == 0

    (row,) = squeezed(say("ls")[1])[1:]
    assert " waiting " in row
    assert " in 3d " in row


def test_runner_runs_orders_until_it_is_stopped(say: Say, tmp_path: Path) -> None:
    say("new", "orders:tasks", "order", '{"number": 1, "item": "teapot"}', "--id", "one")
    journal = tmp_path / "journal.jsonl"
    os.mkfifo(journal)
    command = [sys.executable, "-m", "activity_worker", "steps", "run", "orders:tasks"]
    with subprocess.Popen(command, cwd=ORDERS, stderr=subprocess.DEVNULL) as runner:
        # The first line shows that the runner works; the pipe's end comes after the last step.
        with journal.open() as lines:
            assert '"did": "mail: received"' in lines.readline()
            journal.unlink()
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(60) == 0
    assert squeezed(say("ls")[1])[1].split()[:2] == ["one", "order"]


FAILS = """
from activity_worker.steps import StepError, Task, Tasks

letter = Task("letter")


@letter.step()
def write(letter):
    raise StepError("NoPaper", letter["text"])


tasks = Tasks([letter])
"""


def test_runner_logs_its_start_its_failed_instances_and_its_end(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "letters.py").write_text(FAILS)
    monkeypatch.chdir(tmp_path)
    assert say("new", "letters:tasks", "letter", '{"text": "secret"}', "--id", "mine")[0] == 0
    command = [sys.executable, "-m", "activity_worker", "steps", "run", "letters:tasks", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as runner:
        assert runner.stderr is not None
        logged = [runner.stderr.readline(), runner.stderr.readline()]
        runner.send_signal(signal.SIGTERM)
        logged += runner.stderr.readlines()
        assert runner.wait(60) == 0

    first, failed, last = [json.loads(line) for line in logged]
    about = {"tasks": "letter", "slots": 1, "leaseSeconds": 60.0, "store": "sqlite"}
    assert {"message": "runner started", **about}.items() <= first.items()
    about = {"instance": "mine", "task": "letter", "stepNum": 0, "subStep": "method", "code": "NoPaper"}
    assert {"message": "instance failed", "level": "warning", **about}.items() <= failed.items()
    assert {"message": "runner stopped", "calls": 1, "complete": 1, "failed": 1}.items() <= last.items()
    assert "secret" not in "".join(logged)


@pytest.mark.usefixtures("orders")
def test_completed_instances_are_pruned(say: Say) -> None:
    assert say("prune", "--older-than", "1d")[1] == "0 instances deleted\n"
    assert say("prune", "--older-than", "0s", "--keep-failed")[1].endswith("deleted\n")
    assert say("prune", "--older-than", "soon")[0] == EXIT_USAGE
    assert say("prune", "--older-than", "0s")[0] == 0
    assert "order" not in say("ls")[1]
