"""What both databases can hold: JSON without the two things that PostgreSQL refuses in text."""

import json
import re
from typing import Any, Final

_LONE: Final = re.compile("[\x00\ud800-\udfff]")
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def as_stored(value: Any) -> Any:
    """Return a value as the store would give it back. Raises ValueError saying why it cannot be stored."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half a surrogate pair, which is no text") from None
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if _NUL.search(text):
        raise ValueError("it holds a NUL character, which PostgreSQL does not store")
    return json.loads(text)


def storable_text(text: str) -> str:
    """Return a text with a question mark in a box for every character that cannot be stored."""
    return _LONE.sub("\ufffd", text)
