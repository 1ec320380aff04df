"""`activity-worker dead-letters`, and command lines that cannot be used."""

import asyncio
import json
from typing import Any

import pytest

from activity_worker import cli
from activity_worker.taskbroker.lifecycle.inflight import Outcome, admit
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.producer import NewTask
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, message_of
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import Report, TaskFilter

Run = tuple[int, str, str]
IDS = ("one", "two", "three")


async def make_letters(url: str) -> None:
    """Have three tasks fail for good."""
    store = await BrokerStore.open(url)
    try:
        retry = RetryState(0, 1, OnAttemptsExceeded.DEADLETTER)
        for one in IDS:
            task = NewTask("mail", "send", ["private"], id=one, headers={"trace": "t"}, retry=retry)
            await store.add([admit(message_of(task.activation()).SerializeToString(), store.clock())])
            await store.take(TaskFilter())
        await store.report([Report(one, Outcome.FAILURE) for one in IDS])
        for step in UpkeepStep:
            await store.upkeep(step)
    finally:
        await store.close()


class Terminal:
    """Runs command lines in this process, on one store."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url, self._capsys = url, capsys

    def run(self, *arguments: str) -> Run:
        """Return the exit code, and what was printed to standard output and standard error."""
        try:
            code = cli.main(["dead-letters", *arguments, "--store", self._url])
        except SystemExit as exit_:
            code = int(str(exit_.code))
        out, err = self._capsys.readouterr()
        return code, out, err

    def json(self, *arguments: str) -> Any:
        """Return what a command that succeeds prints with --json."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def terminal(url: str, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A command line on a store with three dead letters."""
    asyncio.run(make_letters(url))
    return Terminal(url, capsys)


def numbers(terminal: Terminal) -> dict[str, str]:
    """Return the number of each dead letter."""
    return {one["id"]: str(one["number"]) for one in terminal.json("list")["deadLetters"]}


def test_list_shows_the_newest_first(terminal: Terminal) -> None:
    listed = terminal.json("list")["deadLetters"]
    assert [one["id"] for one in listed] == ["one", "two", "three"][::-1]
    assert {(one["namespace"], one["taskname"], one["reason"], one["attempts"]) for one in listed} == {
        ("mail", "send", "reported", 1)
    }
    _, out, _ = terminal.run("list", "--limit", "1")
    assert [line.split()[1:6] for line in out.splitlines()] == [
        ["ID", "NAMESPACE", "TASK", "REASON", "ATTEMPTS"],
        ["three", "mail", "send", "reported", "1"],
    ]
    assert terminal.json("list", "--namespace", "other") == {"deadLetters": []}


def test_arguments_are_shown_only_when_asked_for(terminal: Terminal) -> None:
    number = numbers(terminal)["one"]
    _, out, _ = terminal.run("show", number)
    assert "private" not in out
    assert "['trace']" in out
    assert terminal.json("show", number, "--parameters")["args"] == "['private']"


def test_requeued_letter_is_gone(terminal: Terminal) -> None:
    number = numbers(terminal)["one"]
    assert terminal.run("requeue", number)[:2] == (0, "one is pending\n")
    assert set(numbers(terminal)) == {"two", "three"}
    code, _, err = terminal.run("requeue", number)
    assert (code, f"there is no dead letter {number}" in err) == (1, True)


def test_letters_are_purged_by_number_or_age(terminal: Terminal) -> None:
    assert terminal.run("purge", numbers(terminal)["two"])[1] == "1 dead letter deleted\n"
    assert terminal.json("purge", "--older-than", "1h") == {"deleted": 0}
    assert terminal.json("purge", "--older-than", "0s") == {"deleted": 2}
    assert terminal.run("list")[1] == "no dead letters\n"


def test_errors_are_json_when_asked_for(terminal: Terminal) -> None:
    code, _, err = terminal.run("purge", "--json")
    assert code == 2
    assert json.loads(err) == {"error": "give the numbers of dead letters, or --older-than SPAN"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["broker", "--address", "50051"], "--address is HOST:PORT, such as 0.0.0.0:50051, not '50051'"),
        (["broker", "--max-pending", "0"], "--max-pending is at least 1, not 0"),
        (["broker", "--grace-seconds", "-1"], "--grace-seconds is 0 or more seconds, not -1"),
        (["broker", "--health-port", "70000"], "--health-port is a number from 0 to 65535, not 70000"),
        (["broker", "--tls-key", "x"], "--tls-certificate and --tls-key belong together"),
        (["broker", "--secrets-file", "missing"], "--secrets-file: missing cannot be read: No such file"),
        (["dead-letters"], "usage:"),
        (["dead-letters", "list", "--store", "sqlite:///missing.db"], "there is no store at missing.db"),
        (["dead-letters", "list", "--store", "mysql://host"], "--store: a task store is a database at"),
        (["dead-letters", "list", "--limit", "0", "--store", "sqlite://"], "--limit is at least 1, not 0"),
        (["dead-letters", "purge", "--older-than", "x", "--store", "sqlite://"], "'x' is not a span of time"),
    ],
)
def test_wrong_command_line_names_the_argument(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_store_that_cannot_be_opened_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
    assert cli.main(["dead-letters", "list", "--store", url]) == 1
    assert "start the server, or correct host and port in the URL (--store)" in capsys.readouterr().err


def test_wrong_secrets_are_not_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ACTIVITY_BROKER_SECRETS", "hidden")
    assert cli.main(["broker"]) == 2
    error = capsys.readouterr().err
    assert "ACTIVITY_BROKER_SECRETS: expected a JSON list" in error
    assert "hidden" not in error
