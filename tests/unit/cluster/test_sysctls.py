"""Kernel settings have the given values for a while, and their former ones afterwards."""

from pathlib import Path

import pytest

from tests.cluster.machine import OF_A_KUBELET, sysctls


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A kernel with other values than a kubelet demands."""
    for name in OF_A_KUBELET:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("7\n")
    return tmp_path


def test_settings_are_set_and_restored(settings: Path) -> None:
    with sysctls(OF_A_KUBELET, settings):
        assert {name: (settings / name).read_text() for name in OF_A_KUBELET} == OF_A_KUBELET

    assert {(settings / name).read_text() for name in OF_A_KUBELET} == {"7\n"}


def test_settings_are_restored_after_a_failure(settings: Path) -> None:
    with pytest.raises(RuntimeError), sysctls(OF_A_KUBELET, settings):
        raise RuntimeError

    assert {(settings / name).read_text() for name in OF_A_KUBELET} == {"7\n"}
