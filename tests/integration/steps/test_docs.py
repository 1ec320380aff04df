"""docs/steps.md is correct."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from activity_worker import steps

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
DOC = (Path(__file__).parents[3] / "docs" / "steps.md").read_text(encoding="utf-8")


def test_example_of_the_document_prints_the_documented_output(tmp_path: Path) -> None:
    first, second = BLOCK.findall(DOC)[:2]
    expected = re.findall(r"```text\n(.*?)```", DOC, re.DOTALL)[0]
    (tmp_path / "order.py").write_text(first + second, encoding="utf-8")

    done = subprocess.run([sys.executable, "order.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


async def test_documented_test_skips_delays_and_documented_commands_work(capsys: pytest.CaptureFixture[str]) -> None:
    define, _, with_clock, *_ = BLOCK.findall(DOC)
    (commands,) = [one for one in BLOCK.findall(DOC) if "await cancel(" in one]
    code: dict[str, Any] = {}
    failures = [RuntimeError("the bank is closed"), None]

    def fail_first(_: dict[str, Any]) -> None:
        if (error := failures.pop(0)) is not None:
            raise error

    exec(define, code)
    code["order"].methods["pay"] = fail_first
    exec(with_clock, code)
    exec("from activity_worker.steps import cancel, show", code)
    exec("async def commands(store, name):\n" + textwrap.indent(commands, "    "), code)
    store = await steps.TaskStore.open("sqlite://")
    name = await code["tasks"].new(store, "order", {"number": 7, "amount": 20})
    await code["run_through"](store, name)
    assert (failures, code["now"]) == ([], 1005.0)
    later = await code["tasks"].new(store, "order", {"number": 8})
    await code["commands"](store, later)
    await store.close()

    assert f"{later}  order  canceled" in capsys.readouterr().out
