"""Kills for lack of memory, read from the kernel's counter."""

from pathlib import Path

import pytest

from activity_worker.subprocess.oom import OomKillCounter

V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"


@pytest.fixture(params=[("memory/memory.oom_control", V1), ("memory.events", V2)], ids=["cgroup v1", "cgroup v2"])
def counter(request: pytest.FixtureRequest, tmp_path: Path) -> "Counter":
    name, form = request.param
    return Counter(tmp_path, tmp_path / name, form)


class Counter:
    """The OOM counter of a container's control group."""

    def __init__(self, root: Path, file: Path, form: str) -> None:
        self.root, self._file, self._form = root, file, form
        file.parent.mkdir(exist_ok=True)
        self.set_kills(2)

    def set_kills(self, oom_kills: int) -> None:
        """Set the kernel's count of kills."""
        self._file.write_text(self._form.format(oom_kills))


def test_each_kill_is_claimed_once(counter: Counter) -> None:
    oom_kills = OomKillCounter(counter.root)
    assert oom_kills.claim() is False
    counter.set_kills(4)

    assert [oom_kills.claim(), oom_kills.claim(), oom_kills.claim()] == [True, True, False]


def test_claim_without_a_counter_is_unknown(tmp_path: Path) -> None:
    assert OomKillCounter(tmp_path).claim() is None
