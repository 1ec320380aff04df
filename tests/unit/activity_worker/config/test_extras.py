"""What brings a missing extra: an installation, or another image."""

import pytest

from activity_worker.config import extras
from activity_worker.config.reader import SettingsError
from activity_worker.config.settings import HANDLER_PYTHON
from activity_worker.config.sources import TaskbrokerSettings, TaskStoreSettings
from activity_worker.sources.opening import open_source


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv(HANDLER_PYTHON, raising=False)


def test_extra_is_named_with_its_installation() -> None:
    assert extras.missing("steps")
    assert extras.message("steps", "steps") == (
        "steps needs packages that are not installed: pip install 'activitypool[steps]'"
    )


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (TaskStoreSettings("postgresql://db/shop"), "a task store"),
        (TaskbrokerSettings(("broker:50051",)), "a taskbroker"),
    ],
)
async def test_source_that_the_slim_image_lacks_names_the_other_image(
    settings: TaskStoreSettings | TaskbrokerSettings, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HANDLER_PYTHON, "/opt/handler/bin/python3")

    with pytest.raises(SettingsError) as refused:
        await open_source(settings)
    assert str(refused.value) == (
        f"{what} needs packages that are not installed: build on the worker's image without VARIANT=-slim"
    )
