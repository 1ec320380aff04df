"""Where the scene is shown: one panel that is redrawn on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tests.demo import plan
from tests.demo.scene import STATES, Scene

#: How many of the last sentences are shown.
SHOWN = 9
BAR_WIDTH = 60
#: Room at the right for a terminal's `^C`: on a line of its own it would shift the next picture.
ECHO_WIDTH = 3
#: Seconds between two lines of counts at least.
COUNTS_SECONDS = 1.0
MARKS = dict(zip(STATES, ("[yellow]◌", "[bold green]●", "[green]○", "[blue]◍", "[bright_black]·"), strict=True))
#: Block elements, an eighth of a cell's height each.
_BLOCKS = "_▁▂▃▄▅▆▇█"


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
    """A line for each sentence of the story, and for the counts when they have changed."""

    def __init__(self) -> None:
        self._told = 0
        self._counts = ""
        self._counts_at = float("-inf")

    def show(self, scene: Scene, now: float) -> None:
        """Print what is new."""
        began = now if scene.began is None else scene.began
        for said in scene.story[self._told :]:
            print(f"{said.at - began:+7.1f} s  {said.text}", flush=True)
        self._told = len(scene.story)
        counts = f"executions: {executions(scene)} | workers: {workers(scene)} | pool: {pool(scene)}"
        if counts != self._counts and now - self._counts_at >= COUNTS_SECONDS:
            print(f"{now - began:+7.1f} s  {counts}", flush=True)
            self._counts, self._counts_at = counts, now


@contextmanager
def opened() -> Iterator[Screen]:
    """Give the screen that standard output can be; what was shown last stays."""
    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Log()
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Terminal(live)


def executions(scene: Scene) -> str:
    """Say how many executions have not ended, and how many have."""
    left = scene.started - scene.succeeded - scene.failed
    parts = [f"{left} open", f"{scene.succeeded} succeeded"]
    return ", ".join(parts + ([f"{scene.failed} NOT SUCCEEDED"] if scene.failed else []))


def workers(scene: Scene) -> str:
    """Say how many workers are in each state that any is in."""
    counts = ", ".join(f"{number} {state}" for state, number in scene.workers.items() if number) or "none"
    return f"{counts}; {scene.replicas} of 0..{plan.MAX_WORKERS} replicas"


def pool(scene: Scene) -> str:
    """Say whether the pool is Ready, and why."""
    said = scene.ready
    if not said:
        return "the operator has not looked at it yet"
    verdict = {"True": "Ready", "False": "NOT READY"}.get(said["status"], "not known yet")
    message = said.get("message", "")
    return f"{verdict} ({said['reason']})" + (f": {message}" if message else "")


def panel(scene: Scene, now: float) -> RenderableType:
    """Draw the scene as it is at `now`."""
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column(style="bright_black", no_wrap=True)
    rows.add_column(ratio=1)
    done = scene.succeeded + scene.failed
    bar = ProgressBar(total=plan.EXECUTIONS, completed=done, width=BAR_WIDTH)
    marks = Text.from_markup("".join(f"{MARKS[state]} [/]" * number for state, number in scene.workers.items()))
    rows.add_row("executions", bar)
    rows.add_row("", Text(executions(scene)))
    rows.add_row("workers", Group(marks, Text(workers(scene))))
    rows.add_row("replicas", Text(curve(scene, now), style="cyan"))
    rows.add_row("pool", Text(pool(scene), style="" if scene.ready.get("status") == "True" else "yellow"))
    rows.add_row("emulator", Text(scene.problem or "answers", style="bold red" if scene.problem else ""))
    clock = "" if scene.began is None else f"{now - scene.began:.0f} s since the first execution"
    framed = Panel(
        Group(rows, Text(), *_story(scene, now)), title="ActivityPool on Step Functions", subtitle=clock,
        border_style="cyan",
    )  # fmt: skip
    return Padding(framed, (0, ECHO_WIDTH, 0, 0))


def curve(scene: Scene, now: float) -> str:
    """Draw the replicas from the first execution until now, a character for each part of the time."""
    if scene.began is None:
        return ""
    span = max(now - scene.began, BAR_WIDTH / 4)
    moments = (scene.began + span * (place + 1) / BAR_WIDTH for place in range(BAR_WIDTH))
    sizes = [next((size for at, size in reversed(scene.sizes) if at <= one), 0) for one in moments if one <= now]
    return "".join(_BLOCKS[min(8, round(8 * size / plan.MAX_WORKERS))] for size in sizes)


def _story(scene: Scene, now: float) -> list[Text]:
    lines = [
        Text(f"{now - said.at:6.1f} s ago  ", style="bright_black", no_wrap=True, overflow="ellipsis").append(
            said.text, style="red" if said.bad else "default"
        )
        for said in scene.story[-SHOWN:]
    ]
    return lines + [Text()] * (SHOWN - len(lines))
