"""Step Functions emulators as pods of the local cluster, each in a Python environment of its own.

LocalEmu enforces HeartbeatSeconds and TimeoutSeconds; ministack does neither, and is small and fast.
"""

from __future__ import annotations

from tests.cluster.emulator_ports import EmulatorName
from tests.cluster.emulators.start import Emulator, ensure_emulator

__all__ = ["Emulator", "EmulatorName", "ensure_emulator"]
