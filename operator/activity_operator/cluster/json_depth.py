"""Decodes JSON of any depth: levels that are too deep for Python's parser are cut off.

The API server stores free-form fields of up to 10,000 levels. Python's parser raises RecursionError at a thousand, so a
single such object in a LIST or a watch would hide all other objects from the operator.
"""

import json
import re
from typing import Any

#: Levels that are kept of a text that is too deep; no usable object has nearly as many.
KEPT_LEVELS = 200

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def cut_json(text: str) -> str:
    """Return the JSON text with null in place of values below `KEPT_LEVELS` levels."""
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
    """The standard decoder for texts of any depth."""

    def decode(self, s: str, *whitespace: Any) -> Any:
        """Return the decoded value. Raises ValueError for invalid JSON."""
        try:
            return super().decode(s, *whitespace)
        except RecursionError:
            return super().decode(cut_json(s), *whitespace)


def install() -> None:
    """Make each `json.loads` of this process decode texts of any depth; a second call has no effect.

    This includes the calls in kopf and aiohttp, which have no setting for the decoder of a watch.
    """
    if not isinstance(json._default_decoder, DepthLimitedDecoder):  # type: ignore[attr-defined]  # noqa: SLF001
        json._default_decoder = DepthLimitedDecoder()  # type: ignore[attr-defined]  # noqa: SLF001
