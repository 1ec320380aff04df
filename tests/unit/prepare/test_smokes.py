"""The table of `make bare` names tests that exist, and every suite."""

import re
from pathlib import Path

from tests.prepare.bare.smokes import SMOKES

ROOT = Path(__file__).parents[3]


def test_every_test_of_the_table_exists() -> None:
    for file, _, name in (test.partition("::") for smoke in SMOKES for test in smoke.tests):
        assert (ROOT / file).exists(), file
        assert not name or re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (file, name)
