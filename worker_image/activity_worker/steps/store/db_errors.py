"""A database's errors: as `SourceError`s, which repeat neither SQL nor the URL, and as lines for a person."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from activity_worker.contract import Env
from activity_worker.database.errors import describe_error, driver_error, fix_of
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
__all__ = ["DataRefusedError", "describe_error", "driver_error", "refused_data", "translate", "translated"]

#: Where a worker's URL comes from. One that runs keeps the URL with which it was started.
_SETTING: Final = f"{Env.STORE_URL}; in a pool, its Secret in spec.source.taskStore"
_RESTART: Final = ", and start the worker again"
#: Longest message that is passed on.
_MAX_MESSAGE: Final = 200


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
