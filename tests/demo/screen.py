"""Where the scene is shown: one panel that is redrawn on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live

from tests.demo.lines import Printed, lines
from tests.demo.panel import panel
from tests.demo.scene import Scene


class Screen(Protocol):
    """Shows a scene."""

    def show(self, scene: Scene, now: float) -> None:
        """Show the scene as it is at `now`."""
        ...


class Terminal:
    """One panel, redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, scene: Scene, now: float) -> None:
        """Redraw it."""
        self._live.update(panel(scene, now), refresh=True)


class Log:
    """A line for each change."""

    def __init__(self) -> None:
        self._printed = Printed()

    def show(self, scene: Scene, now: float) -> None:
        """Print what is new."""
        found, self._printed = lines(scene, now, self._printed)
        for line in found:
            print(line, flush=True)


@contextmanager
def opened() -> Iterator[Screen]:
    """Give the screen that standard output can be; what was shown last stays."""
    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Log()
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Terminal(live)
