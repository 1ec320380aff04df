"""Outcome of a suite: the counts and the failures, each with the end of its text."""

from pathlib import Path

from tests.suites import outcome

_REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_holds"/>
<testcase classname="tests.unit.test_a" name="test_waits"><skipped message="no such machine"/></testcase>
<testcase classname="tests.unit.test_a" name="test_fails[1]">
<failure message="short">{lines}</failure><error message="teardown broke"/>
</testcase>
</testsuite></testsuites>"""


def test_counts_and_failures_are_read_from_the_report_of_pytest(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(_REPORT.format(lines="\n".join(str(line) for line in range(100))))
    found = outcome.read(report)
    assert (found.tests, found.skipped) == (3, 1)
    failed, broken = found.failures
    assert failed.name == broken.name == "tests.unit.test_a::test_fails[1]"
    assert failed.text.splitlines() == [str(line) for line in range(70, 100)]
    assert broken.text == "teardown broke"


def test_missing_report_is_an_empty_outcome(tmp_path: Path) -> None:
    """A pytest process that is killed leaves no report."""
    assert outcome.read(tmp_path / "report.xml") == outcome.Outcome()
