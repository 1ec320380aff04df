"""What both databases can hold: JSON without the two things that PostgreSQL refuses in text, and not too deep."""

import json
import re
from typing import Any, Final

#: The code of a call whose answer cannot be stored.
NOT_JSON: Final = "ReturnNotJson"
#: Most levels of maps and lists in data. Python's JSON fails at about 970, less what its caller's stack has: half of
#: that can be read and written from anywhere.
MAX_DEPTH: Final = 500
_TOO_DEEP: Final = f"it has more than {MAX_DEPTH} levels of maps and lists"
_LONE: Final = re.compile("[\x00\ud800-\udfff]")
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def as_stored(value: Any) -> Any:
    """Return a value as the store would give it back. Raises ValueError saying why it cannot be stored."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        stored = json.loads(text)
    except UnicodeEncodeError:
        raise ValueError("it holds half a surrogate pair, which is no text") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    if _NUL.search(text):
        raise ValueError("it holds a NUL character, which PostgreSQL does not store")
    if max_depth_exceeded(stored):
        raise ValueError(_TOO_DEEP)
    return stored


def max_depth_exceeded(value: Any) -> bool:
    """Return whether JSON data has more levels of maps and lists than are stored."""
    level, depth = [value], 0
    while level:
        level = [one for one in level if isinstance(one, dict | list)]
        depth += bool(level)
        if depth > MAX_DEPTH:
            return True
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return False


def storable_text(text: str) -> str:
    """Return a text with a question mark in a box for every character that cannot be stored."""
    return _LONE.sub("\ufffd", text)
