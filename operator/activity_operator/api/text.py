"""Texts of other people's, made fit to be shown: in a log, a terminal, an Event or a status."""


def printable(text: str) -> str:
    r"""Return the text with everything that is no visible character written as an escape, such as \n or \x1b.

    A line break would begin another line of a log, an escape sequence would rewrite the terminal of whoever reads it,
    and a text that turns the direction of writing would show other words than it has.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
