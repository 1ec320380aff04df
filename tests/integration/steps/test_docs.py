"""docs/steps.md is correct."""

import re
import subprocess
import sys
from pathlib import Path

DOC = (Path(__file__).parents[3] / "docs" / "steps.md").read_text(encoding="utf-8")


def test_example_of_the_document_prints_the_documented_output(tmp_path: Path) -> None:
    first, second = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)[:2]
    expected = re.findall(r"```text\n(.*?)```", DOC, re.DOTALL)[0]
    (tmp_path / "order.py").write_text(first + second, encoding="utf-8")

    done = subprocess.run([sys.executable, "order.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr
