"""The check of names finds unknown words, stale list entries and stale exceptions, and knows the forms of a word."""

import pytest

from tests.scripts.check_names import base_forms, complaints, glossary_words, names

SOURCE = """
class BrainReader:
    def read(self): ...
    def _custody(self): ...

class _Hidden:
    def custody(self): ...

if True:
    def stopped_reading():
        def inner(): ...
"""
GLOSSARY = """# Glossary

| word | meaning |
|---|---|
| start breaker | stops growth |
| drain, drained | finishes its tasks |
"""


def test_names_are_those_of_modules_and_public_definitions() -> None:
    found = [(name.line, name.text) for name in names("operator/brains.py", SOURCE)]
    assert found == [(1, "brains"), (2, "BrainReader"), (3, "read"), (10, "stopped_reading")]


def test_package_is_named_by_its_folder() -> None:
    assert [name.text for name in names("operator/custody/__init__.py", "")] == ["custody"]


def test_unknown_word_is_found_with_path_and_line() -> None:
    found = complaints(names("a/reader.py", SOURCE), set(), {"plain.txt": {"read", "reader", "stop"}}, set())
    assert [line.partition(": use")[0] for line in found] == ["a/reader.py:2: BrainReader: 'brain' is unknown"]


def test_exception_holds_for_its_word_in_its_file_only() -> None:
    lists = {"plain.txt": {"read", "reader", "stop"}}
    assert complaints(names("a/reader.py", SOURCE), set(), lists, {("a/reader.py", "brain")}) == []
    assert len(complaints(names("a/reader.py", SOURCE), set(), lists, {("b/reader.py", "brain")})) == 2


def test_stale_exception_is_found() -> None:
    found = complaints(names("a/reader.py", ""), set(), {"plain.txt": {"reader"}}, {("a/reader.py", "brain")})
    assert found == ["a/reader.py: EXCEPTIONS names 'brain', and no unknown word needs it: take it out"]


def test_listed_word_without_a_name_is_found() -> None:
    found = complaints(names("a/reader.py", ""), set(), {"plain.txt": {"reader", "brain"}}, set())
    assert found == ["plain.txt: 'brain' is in no name: take it out"]


def test_listed_word_that_the_glossary_explains_is_found() -> None:
    found = complaints(names("a/drain.py", ""), glossary_words(GLOSSARY), {"plain.txt": {"drain"}}, set())
    assert found == ["plain.txt: 'drain' is in the glossary: take it out"]


def test_words_of_the_glossary_are_those_of_its_first_column() -> None:
    assert glossary_words(GLOSSARY) == {"start", "breaker", "drain", "drained"}


@pytest.mark.parametrize(
    ("form", "base"),
    [("stopped", "stop"), ("retries", "retry"), ("leasing", "lease"), ("batches", "batch"), ("pods", "pod")],
)
def test_form_of_a_word_leads_to_the_word(form: str, base: str) -> None:
    assert base in base_forms(form)


def test_short_word_is_no_form_of_another() -> None:
    assert list(base_forms("as")) == ["as"]
