"""What ships for tests of handlers and of this project: fakes and in-process stand-ins.

The names are loaded when they are first used: `ActivityEnvironment` needs the standard library alone, the fakes need
the extra `worker`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker.testing.environment import ActivityEnvironment
    from activity_worker.testing.fake_clock import VirtualClock
    from activity_worker.testing.fake_faults import Fault
    from activity_worker.testing.fake_in_thread import FakeInThread
    from activity_worker.testing.fake_operations import FakeSettings
    from activity_worker.testing.fake_server import StepFunctionsFake
    from activity_worker.testing.fake_swf import SwfFake
    from activity_worker.testing.fake_swf_model import FakeActivityTask, FakeTimeouts
    from activity_worker.testing.fake_swf_operations import SwfFakeSettings
    from activity_worker.testing.fake_tasks import FakeTask

__all__ = [
    "ActivityEnvironment",
    "FakeActivityTask",
    "FakeInThread",
    "FakeSettings",
    "FakeTask",
    "FakeTimeouts",
    "Fault",
    "StepFunctionsFake",
    "SwfFake",
    "SwfFakeSettings",
    "VirtualClock",
]

_MODULE_OF = {
    "ActivityEnvironment": "environment",
    "FakeActivityTask": "fake_swf_model",
    "FakeInThread": "fake_in_thread",
    "FakeSettings": "fake_operations",
    "FakeTask": "fake_tasks",
    "FakeTimeouts": "fake_swf_model",
    "Fault": "fake_faults",
    "StepFunctionsFake": "fake_server",
    "SwfFake": "fake_swf",
    "SwfFakeSettings": "fake_swf_operations",
    "VirtualClock": "fake_clock",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'activity_worker.testing' has no attribute {name!r}")
    try:
        return getattr(import_module(f"activity_worker.testing.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        needed = f"{name} needs aiohttp, which is not installed: pip install 'activitypool[worker]'"
        raise ModuleNotFoundError(needed, name=error.name) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
