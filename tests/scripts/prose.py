"""PURE: the sentences that people read in this repository, and the idioms that make a sentence hard to read."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

#: Words that stand for a noun that the reader must find, or that turn a sentence around.
IDIOMS = ("whom", "nobody", "whoever", "anew", "told", "said", "yet to", "of none", "so many", "befall", "befalls")
IDIOM = re.compile(rf"(?<![\w-])(?:{'|'.join(IDIOMS)})(?![\w-])", re.IGNORECASE)
#: Code, links and quotations in a text are not our prose.
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\"[^\"]*\"|https?://\S+|\]\([^)]*\)", re.DOTALL)
END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?=[-*|#])|\s\|\s")
#: A comment that a tool reads.
PRAGMA = re.compile(r"#\s*(noqa|type:|fmt:|pragma|!)")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and the line at which its text begins."""

    line: int
    text: str

    @property
    def idiom(self) -> str:
        """The first idiom in the sentence, "" when there is none."""
        found = IDIOM.search(self.text)
        return found[0] if found else ""


def of_python(source: str) -> Iterator[Sentence]:
    """Yield the sentences of a module's docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[:1]
            if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                yield from _split(str(body[0].value.value), body[0].lineno)
    yield from _of_comments(source)


def of_markdown(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a page."""
    yield from _split(text, 1)


def _of_comments(source: str) -> Iterator[Sentence]:
    """Yield the sentences of comments; lines of comment that follow each other are one text."""
    begin, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not PRAGMA.match(token.string):
            if token.start[0] != last + 1:
                yield from _split(" ".join(lines), begin)
                begin, lines = token.start[0], []
            last = token.start[0]
            lines.append(token.string.lstrip("#: "))
    yield from _split(" ".join(lines), begin)


def _split(text: str, line: int) -> Iterator[Sentence]:
    for sentence in END.split(NOT_PROSE.sub("_", text)):
        words = " ".join(sentence.split())
        if len(words.split()) > 1:
            yield Sentence(line, words)
