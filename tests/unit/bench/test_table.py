"""The benchmarks' table: what a reader is told, and that a missed goal is only printed."""

import pytest

from tests.bench import __main__ as front
from tests.bench.registry import BENCHMARKS, Benchmark, choose
from tests.bench.table import Row, Table, at_most, number, ratio


def test_a_rate_beside_a_peers_is_a_ratio_with_its_goal() -> None:
    fast = ratio("tasks", 3000.0, "peer", 1000.0, unit="/s", goal=3)
    slow = ratio("tasks", 2990.0, "peer", 1000.0, unit="/s", goal=3)

    assert (fast.ours, fast.peer, fast.against) == ("3,000 /s", "peer: 1,000 /s", "3.00x (goal >= 3x)")
    assert (fast.verdict, slow.verdict) == ("met", "missed")


def test_a_number_at_its_limit_meets_it() -> None:
    assert [at_most("memory", value, 200, unit="MB").verdict for value in (200.0, 200.1)] == ["met", "missed"]


def test_a_row_without_a_goal_has_no_verdict() -> None:
    assert ratio("tasks", 2.0, "peer", 1.0, unit="/s").verdict == Row("tasks", "2").verdict == ""


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0 s"), (0.01234, "0.0123 s"), (12.345, "12.3 s"), (1234.5, "1,234 s")]
)
def test_numbers_have_three_figures_at_least(value: float, said: str) -> None:
    assert number(value, "s") == said


def test_the_markdown_table_has_every_row_in_one_line_and_the_machine_below() -> None:
    table = Table("2 cores")
    table.add("first", [Row("a | b", "1", how="two\nlines")])
    table.add("second", [Row("c", "2")])

    lines = table.markdown().splitlines()

    assert [line.count(" | ") for line in lines[:4]] == [5, 5, 5, 5]
    assert lines[2].startswith("| a \\| b | 1 |")
    assert lines[-1] == "2 cores"


def test_a_benchmark_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="no such benchmark: nonsense"):
        choose(["nonsense"])


def test_benchmarks_run_in_the_tables_order_whatever_the_order_they_are_named_in() -> None:
    names = [benchmark.name for benchmark in BENCHMARKS]

    assert [benchmark.name for benchmark in choose(names[::-1])] == names
    assert [benchmark.name for benchmark in choose([])] == names


def test_a_benchmark_that_cannot_run_is_a_row_and_an_exit_code_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Benchmark("broken", "tests.bench.no_such_module", "cannot run")
    sound = Benchmark("sound", "tests.unit.bench.test_table", "runs")
    monkeypatch.setattr(front, "choose", lambda _: [broken, sound])

    assert front.main([]) == 1

    said = capsys.readouterr().out
    assert "could not run" in said
    assert "a sound row" in said


def test_a_missed_goal_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(front, "choose", lambda _: [Benchmark("sound", "tests.unit.bench.test_table", "runs")])

    assert front.main([]) == 0
    assert "missed" in capsys.readouterr().out


def run() -> list[Row]:
    """Stand in for a benchmark: this module is one."""
    return [at_most("a sound row", 2, 1, unit="s")]
