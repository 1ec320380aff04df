"""The longest standstill is taken from the beats of the window, not from those before it."""

from pathlib import Path

from tests.bench import beating_operator


def test_only_late_beats_of_the_window_count(tmp_path: Path) -> None:
    file = tmp_path / "beats"
    file.write_text("10.000 0.9000\n20.000 0.0300\n21.500 0.0520\n22.000 0.0250\n", encoding="utf-8")

    assert beating_operator.longest(file, 20.0) == 0.052


def test_a_loop_without_a_late_beat_stood_for_no_time(tmp_path: Path) -> None:
    file = tmp_path / "beats"
    file.write_text("", encoding="utf-8")

    assert beating_operator.longest(file, 0.0) == 0.0
