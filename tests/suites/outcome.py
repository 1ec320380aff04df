"""What a suite came to, read from the report that pytest wrote of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

#: Of a failure's text, the end that is repeated below the table: where it was raised, and what with.
LINES_OF_A_FAILURE = 30


@dataclass(frozen=True, slots=True)
class Failure:
    """One test that failed: its name with its module's, and the end of what pytest said of it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many tests a suite had, how many it skipped, and those that failed; all empty if pytest wrote no report."""

    tests: int = 0
    skipped: int = 0
    failures: tuple[Failure, ...] = ()


def read(report: Path) -> Outcome:
    """Read pytest's report (JUnit XML), which a pytest that was killed has not written."""
    if not report.exists():
        return Outcome()
    cases = list(ET.parse(report).getroot().iter("testcase"))
    return Outcome(
        tests=len(cases),
        skipped=sum(1 for case in cases if case.find("skipped") is not None),
        failures=tuple(failure for case in cases for failure in _failures(case)),
    )


def _failures(case: ET.Element) -> Iterator[Failure]:
    # A test can fail and its teardown break as well: both are said.
    for found in (*case.findall("failure"), *case.findall("error")):
        text = "\n".join((found.text or found.get("message") or "").splitlines()[-LINES_OF_A_FAILURE:])
        yield Failure(f"{case.get('classname')}::{case.get('name')}", text)
