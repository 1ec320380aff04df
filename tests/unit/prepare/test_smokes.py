"""The table of `make bare` names tests that exist, and every suite."""

import re
from pathlib import Path

from tests.prepare.bare.smokes import SMOKES, Row, exit_code, report

ROOT = Path(__file__).parents[3]


def test_every_test_of_the_table_exists() -> None:
    for file, _, name in (test.partition("::") for smoke in SMOKES for test in smoke.tests):
        assert (ROOT / file).exists(), file
        assert not name or re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (file, name)


def test_smoke_that_passes_the_second_time_fails_no_run_and_is_named() -> None:
    rows = [Row("unit", 1.0, 0), Row("e2e", 9.0, 1, ("E  no room on the disk",)), Row("e2e", 8.0, 0)]

    assert exit_code(rows) == 0
    assert "e2e (UNSTEADY: it passed the second time) ended with:\n  E  no room on the disk" in "\n".join(report(rows))


def test_smoke_that_fails_twice_fails_the_run_and_is_said_last() -> None:
    rows = [Row("e2e", 9.0, 1, ("first",)), Row("e2e", 8.0, 1, ("second",)), Row("unit", 1.0, 0)]

    assert exit_code(rows) == 1
    assert list(report(rows))[-6:] == ["", "e2e ended with:", "  first", "", "e2e ended with:", "  second"]
