"""A database's errors as lines for a person, with the fix. No line repeats SQL or the URL."""

import ssl
from typing import Final

from sqlalchemy.exc import DBAPIError

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
