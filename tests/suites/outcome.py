"""The result of a suite, read from pytest's report."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

#: Lines of a failure's text that are repeated below the table: its end, with the place and the values of the assertion.
LINES_OF_A_FAILURE = 30


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed test: its name with its module's, and the end of pytest's text about it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many tests a suite had, how many it skipped, and the failures; all are empty if pytest wrote no report."""

    tests: int = 0
    skipped: int = 0
    failures: tuple[Failure, ...] = ()


def read(report: Path) -> Outcome:
    """Read pytest's report (JUnit XML). A pytest that was killed has written none."""
    if not report.exists():
        return Outcome()
    cases = list(ET.parse(report).getroot().iter("testcase"))
    return Outcome(
        tests=len(cases),
        skipped=sum(1 for case in cases if case.find("skipped") is not None),
        failures=tuple(failure for case in cases for failure in _failures(case)),
    )


def _failures(case: ET.Element) -> Iterator[Failure]:
    # A test can fail and its teardown can fail as well: both are reported.
    for found in (*case.findall("failure"), *case.findall("error")):
        text = "\n".join((found.text or found.get("message") or "").splitlines()[-LINES_OF_A_FAILURE:])
        yield Failure(f"{case.get('classname')}::{case.get('name')}", text)
