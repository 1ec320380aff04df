"""A database's errors in the runtime's words. What a statement was about, and the URL, are never repeated."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

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
from activity_worker.steps.store.messages import driver_error, fix_of
from activity_worker.wire.store_url import StoreUrlError

#: By the first characters of PostgreSQL's error code: who we are, what is not there, and what there is too much of.
_BY_CODE: Final[tuple[tuple[str, type[SourceError]], ...]] = (
    ("28", DeniedError),
    ("42501", DeniedError),
    ("3D000", MissingError),
    ("42P01", MissingError),
    ("53", ThrottledError),
    ("08", UnreachableError),
    ("57", UnreachableError),
)
#: Where a worker's URL comes from. One that runs keeps the URL with which it was started.
_SETTING: Final = f"{Env.STORE_URL}; in a pool, its Secret in spec.source.taskStore"
_ANEW: Final = ", and start the worker again"
#: Longest message that is passed on.
_MAX_MESSAGE: Final = 200


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
    for start, kind in _BY_CODE:
        if code.startswith(start):
            return kind(type(cause).__name__, _words(cause), fix=fix + _ANEW if _SETTING in fix else fix)
    if isinstance(cause, OSError | sqlite3.OperationalError):
        return UnreachableError(type(cause).__name__, _words(cause), fix=fix)
    # What it says may hold what was to be written.
    return UnreachableError(type(cause).__name__)


def _words(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:_MAX_MESSAGE]
