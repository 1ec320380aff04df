"""Escapes for texts from outside, so that a log, a terminal, an Event or a status can show them."""

import json


def printable(text: str) -> str:
    r"""Return the text with every unprintable character written as an escape, such as \n or \x1b.

    A line break could forge a line of a log, an escape sequence could rewrite the reader's terminal, and a character
    that changes the direction of writing could hide the real words.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, size: int) -> str:
    """Return the start of the text that takes at most `size` bytes in JSON, its quotes left out."""
    text = text[:size]
    while (excess := len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2 - size) > 0:
        # A character takes 6 bytes at most.
        text = text[: len(text) - max(excess // 6, 1)]
    return text
