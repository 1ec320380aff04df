"""What ships for tests of handlers and of this project: fakes and in-process stand-ins."""

from activity_worker.testing.environment import ActivityEnvironment
from activity_worker.testing.fake_clock import VirtualClock
from activity_worker.testing.fake_faults import Fault
from activity_worker.testing.fake_operations import FakeSettings
from activity_worker.testing.fake_server import StepFunctionsFake
from activity_worker.testing.fake_swf import SwfFake
from activity_worker.testing.fake_swf_model import FakeActivityTask, FakeTimeouts
from activity_worker.testing.fake_swf_operations import SwfFakeSettings
from activity_worker.testing.fake_tasks import FakeTask

__all__ = [
    "ActivityEnvironment",
    "FakeActivityTask",
    "FakeSettings",
    "FakeTask",
    "FakeTimeouts",
    "Fault",
    "StepFunctionsFake",
    "SwfFake",
    "SwfFakeSettings",
    "VirtualClock",
]
