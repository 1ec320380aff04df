"""Node ports of the emulators: fixed, so that kind can map them to this machine when it makes its node."""

from __future__ import annotations

from typing import Literal

EmulatorName = Literal["localemu", "ministack"]
NODE_PORTS: dict[EmulatorName, int] = {"localemu": 30566, "ministack": 30567}
PORT = 4566
