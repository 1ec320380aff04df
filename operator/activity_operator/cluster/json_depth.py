"""JSON of any depth: what is nested more deeply than Python can follow is cut off, not raised.

The API server stores free-form fields up to 10,000 levels deep. Python's parser raises RecursionError at a thousand, so
that a single object in a LIST or a watch would blind the operator to all the others.
"""

import json
import re
from typing import Any

#: Levels that are kept of a text that is too deep: far more than any object has that could be used.
KEPT_LEVELS = 200

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def cut_json(text: str) -> str:
    """Return the JSON text with null in the place of what lies deeper than `KEPT_LEVELS`."""
    kept: list[str] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(text):
        found = token.group()
        if found in "[{":
            depth += 1
            if depth == KEPT_LEVELS + 1:
                kept += [text[begin : token.start()], "null"]
        elif found in "]}":
            if depth == KEPT_LEVELS + 1:
                begin = token.end()
            depth -= 1
    return "".join([*kept, text[begin:]])


class DepthLimitedDecoder(json.JSONDecoder):
    """The standard decoder, for texts of any depth."""

    def decode(self, s: str, *whitespace: Any) -> Any:
        """Return what the text says. Raises ValueError for what is no JSON."""
        try:
            return super().decode(s, *whitespace)
        except RecursionError:
            return super().decode(cut_json(s), *whitespace)


def install() -> None:
    """Have every `json.loads` of this process read texts of any depth; done before, it means nothing.

    That includes those of kopf and aiohttp, which offer no other way to say how a watch is read.
    """
    if not isinstance(json._default_decoder, DepthLimitedDecoder):  # type: ignore[attr-defined]  # noqa: SLF001
        json._default_decoder = DepthLimitedDecoder()  # type: ignore[attr-defined]  # noqa: SLF001
