"""Translation of a database's errors into source errors."""

import sqlite3

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from activity_worker.contract import PollFault
from activity_worker.errors import LeaseLostError, SourceError
from activity_worker.steps.store import task_store
from activity_worker.steps.store.db_errors import translate, translated
from activity_worker.subprocess.errors import from_wire, to_wire
from activity_worker.wire.store_url import StoreUrlError


class ServerError(Exception):
    """An error as the driver raises it, with PostgreSQL's code."""

    def __init__(self, sqlstate: str, message: str = "words") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def wrapped(error: Exception) -> Exception:
    wrapper = Exception("the driver's wrapper")
    wrapper.__cause__ = error
    return ProgrammingError("SELECT :secret", {"secret": "ruby-moon"}, wrapper)


@pytest.mark.parametrize(
    ("raised", "fault", "words"),
    [
        (wrapped(ServerError("28P01")), PollFault.DENIED, "ServerError: words"),
        (wrapped(ServerError("42501")), PollFault.DENIED, "ServerError: words"),
        (wrapped(ServerError("3D000")), PollFault.MISSING, "ServerError: words"),
        (wrapped(ServerError("42P01")), PollFault.MISSING, "ServerError: words"),
        (wrapped(ServerError("53300")), PollFault.THROTTLED, "ServerError: words"),
        (wrapped(ServerError("57P03")), PollFault.UNREACHABLE, "ServerError: words"),
        (wrapped(ServerError("08006")), PollFault.UNREACHABLE, "ServerError: words"),
        (wrapped(ServerError("22P02", "invalid: ruby-moon")), PollFault.UNREACHABLE, "ServerError"),
        (ConnectionRefusedError(111, "refused"), PollFault.UNREACHABLE, "ConnectionRefusedError: [Errno 111] refused"),
        (
            OperationalError("SELECT :x", {"x": "ruby-moon"}, sqlite3.OperationalError("database is locked")),
            PollFault.UNREACHABLE,
            "OperationalError: database is locked",
        ),
        (PoolTimeoutError("QueuePool limit"), PollFault.UNREACHABLE, "TimeoutError"),
        (StoreUrlError("no such kind"), PollFault.OTHER, "StoreUrl: no such kind"),
        (task_store.InstanceLeaseLostError("another"), PollFault.OTHER, "LeaseLost: another"),
    ],
)
def test_errors_are_classified_and_do_not_show_parameters(raised: Exception, fault: PollFault, words: str) -> None:
    with pytest.raises(SourceError) as caught, translated():
        raise raised

    assert (caught.value.fault, f"{caught.value.code}: {caught.value.message}".removesuffix(": ")) == (fault, words)
    assert isinstance(caught.value, LeaseLostError) == isinstance(raised, task_store.InstanceLeaseLostError)
    assert "ruby-moon" not in f"{caught.value} {caught.value.__cause__}"


WHERE = "(ACTIVITY_STORE_URL; in a pool, its Secret in spec.source.taskStore), and start the worker again"


@pytest.mark.parametrize(
    ("code", "text", "fix"),
    [
        (
            "28P01",
            'password authentication failed for user "orders"',
            f"; the server refuses the user or the password: correct them in the URL {WHERE}",
        ),
        ("3D000", 'no database "x"', f"; create the database, or correct its name at the end of the URL {WHERE}"),
        ("53300", "too many clients", "; free connections, or allow more of them"),
        ("42P01", "no table", ""),
    ],
)
def test_log_names_the_fix_and_the_report_only_the_error(code: str, text: str, fix: str) -> None:
    """The operator adds the place of a pool's URL itself, so the report must not repeat it."""
    error = translate(wrapped(ServerError(code, text)))

    assert (error.message, str(error)) == (text, f"ServerError: {text}{fix}")
    there_and_back = from_wire(to_wire(error))
    assert (type(there_and_back), str(there_and_back)) == (type(error), str(error))
