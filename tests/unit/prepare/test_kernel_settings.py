"""The kernel's settings are as a kubelet demands while the bare root runs, and as before afterwards."""

from pathlib import Path

import pytest

from tests.prepare.bare.kernel_settings import KUBELET, as_a_kubelet_demands


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A kernel with other values than a kubelet demands."""
    for name in KUBELET:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("7\n")
    return tmp_path


def test_settings_are_set_and_restored(settings: Path) -> None:
    with as_a_kubelet_demands(settings):
        assert {name: (settings / name).read_text() for name in KUBELET} == KUBELET

    assert {(settings / name).read_text() for name in KUBELET} == {"7\n"}


def test_settings_are_restored_after_a_failure(settings: Path) -> None:
    with pytest.raises(RuntimeError), as_a_kubelet_demands(settings):
        raise RuntimeError

    assert {(settings / name).read_text() for name in KUBELET} == {"7\n"}
