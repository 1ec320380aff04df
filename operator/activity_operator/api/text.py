"""Escapes for texts from outside, so that a log, a terminal, an Event or a status can show them."""


def printable(text: str) -> str:
    r"""Return the text with every unprintable character written as an escape, such as \n or \x1b.

    A line break could forge a line of a log, an escape sequence could rewrite the reader's terminal, and a character
    that changes the direction of writing could hide the real words.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
