"""A database's errors: as `SourceError`s, which repeat neither SQL nor the URL, and as lines for a person."""

import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from activity_worker.contract import Env
from activity_worker.errors import (
    DeniedError,
    LeaseLostError,
    MissingError,
    SourceError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.steps.store import task_store
from activity_worker.wire.store_url import StoreUrlError

#: By the first characters of PostgreSQL's error code.
_ERROR_BY_CODE: Final[tuple[tuple[str, type[SourceError]], ...]] = (
    ("28", DeniedError),
    ("42501", DeniedError),
    ("3D000", MissingError),
    ("42P01", MissingError),
    ("53", ThrottledError),
    ("08", UnreachableError),
    ("57", UnreachableError),
)
#: PostgreSQL's classes of errors for a wrong value and for one that is above a limit, such as 256 MB in jsonb.
_DATA_CODES: Final = ("22", "54")
#: Where a worker's URL comes from. One that runs keeps the URL with which it was started.
_SETTING: Final = f"{Env.STORE_URL}; in a pool, its Secret in spec.source.taskStore"
_RESTART: Final = ", and start the worker again"
#: Longest message that is passed on.
_MAX_MESSAGE: Final = 200
#: By the first characters of PostgreSQL's error code. `{url}` is the URL, with the setting that it comes from.
_FIX_BY_CODE: Final = (
    ("28", "the server refuses the user or the password: correct them in {url}"),
    ("3D000", "create the database, or correct its name at the end of {url}"),
    ("42501", "the URL's user needs more rights: SELECT on the tables activitypool_* is for looking only"),
    ("25006", "name the primary: this server can be read only"),
    ("53", "free connections, or allow more of them"),
    ("57P", "try again when the server is up"),
)
#: By what the error says; of SQLite, and of the way to a server.
_FIX_BY_TEXT: Final = (
    ("permission denied for schema", "grant the URL's user CREATE on it, or let somebody who may open the store first"),
    ("unable to open database file", "its folder must be there and writable; sqlite:////F has a path from the root"),
    ("file is not a database", "correct the path: that file is something else"),
    ("readonly database", "the file and its folder must be writable, to look as well"),
    ("database is locked", "another process writes for long; try again"),
    ("rejected SSL upgrade", "let the server speak TLS, or take sslmode out of {url}"),
    ("Name or service not known", "correct the name of the host in {url}"),
    ("Connect call failed", "start the server, or correct host and port in {url}"),
)
_FIX_UNTRUSTED: Final = "name the CA that vouches for the server: sslrootcert=FILE in {url}"
_FIX_NO_ANSWER: Final = "no answer in time: is the server, or a firewall before it, the right one?"


class DataRefusedError(ValueError):
    """The store can never hold this data: it is larger than a value may be, or not of a kind that the store takes."""


@contextmanager
def refused_data(what: str) -> Iterator[None]:
    """Raise DataRefusedError for what the store refuses because of the data; `what` names the data in the message."""
    try:
        yield
    except SQLAlchemyError as error:
        if not _refuses_data(error):
            raise
        # Not chained, and without the database's own text: both may show the data.
        name = type(driver_error(error)).__name__
        raise DataRefusedError(f"the task store refuses {what} ({name})") from None


def _refuses_data(error: SQLAlchemyError) -> bool:
    cause = driver_error(error)
    if isinstance(error, StatementError) and not isinstance(error, DBAPIError):
        # SQLAlchemy wraps so what is raised while the parameters are written, before the database gets them.
        return True
    code = str(getattr(cause, "sqlstate", None) or "")
    return code.startswith(_DATA_CODES) or isinstance(cause, sqlite3.DataError | ValueError)


@contextmanager
def translated() -> Iterator[None]:
    """Raise what a task store raises as a `SourceError`."""
    try:
        yield
    except task_store.InstanceLeaseLostError as error:
        raise LeaseLostError("LeaseLost", str(error)) from error
    except StoreUrlError as error:
        raise SourceError("StoreUrl", str(error)) from error
    except (SQLAlchemyError, OSError) as error:
        # Not chained: a traceback would show the statement's values.
        raise translate(error) from None


def translate(error: Exception) -> SourceError:
    """Return the runtime's error for one of a database, or of the way to it."""
    cause, fix = driver_error(error), fix_of(error, _SETTING)
    code = str(getattr(cause, "sqlstate", None) or "")
    for start, kind in _ERROR_BY_CODE:
        if code.startswith(start):
            return kind(type(cause).__name__, _words(cause), fix=fix + _RESTART if _SETTING in fix else fix)
    if isinstance(cause, OSError | sqlite3.OperationalError):
        return UnreachableError(type(cause).__name__, _words(cause), fix=fix)
    # What it says may hold what was to be written.
    return UnreachableError(type(cause).__name__)


def _words(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:_MAX_MESSAGE]


def describe_error(error: Exception, setting: str) -> str:
    """Return one line for a person at a terminal: the error's name, its text and the fix.

    `error` is SQLAlchemy's or the network's; `setting` names where the URL came from, such as a flag or a variable.
    """
    cause = driver_error(error)
    words = (str(cause).splitlines() or [""])[0]
    line = ": ".join(filter(None, (type(cause).__name__, words)))
    return f"{line}; {fix}" if (fix := fix_of(error, setting)) else line


def driver_error(error: Exception) -> BaseException:
    """Unwrap the driver's error from SQLAlchemy's."""
    cause: BaseException = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return cause.__cause__ or cause


def fix_of(error: Exception, setting: str) -> str:
    """Return what to do about an error, "" if that is not known. The fix repeats nothing of the error's text."""
    cause = driver_error(error)
    return _fix(cause, (str(cause).splitlines() or [""])[0]).replace("{url}", f"the URL ({setting})")


def _fix(cause: BaseException, words: str) -> str:
    code = str(getattr(cause, "sqlstate", None) or "")
    by_code = next((fix for start, fix in _FIX_BY_CODE if code.startswith(start)), "")
    by_words = next((fix for part, fix in _FIX_BY_TEXT if part in words), "")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _FIX_UNTRUSTED
    if isinstance(cause, TimeoutError) and not by_words:
        return _FIX_NO_ANSWER
    return by_words or by_code
