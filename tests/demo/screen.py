"""Where the state is shown: one panel that is redrawn on a terminal, plain lines elsewhere."""

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
from tests.demo.demo_state import STATES, DemoState

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
    """Shows a state."""

    def show(self, demo_state: DemoState, now: float) -> None:
        """Show the state as it is at `now`."""
        ...


class Terminal:
    """One panel, redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, demo_state: DemoState, now: float) -> None:
        """Redraw it."""
        self._live.update(panel(demo_state, now), refresh=True)


class Log:
    """A line for each sentence of the story, and for the counts when they have changed."""

    def __init__(self) -> None:
        self._told = 0
        self._counts = ""
        self._counts_at = float("-inf")

    def show(self, demo_state: DemoState, now: float) -> None:
        """Print what is new."""
        began = now if demo_state.began is None else demo_state.began
        for said in demo_state.story[self._told :]:
            print(f"{said.at - began:+7.1f} s  {said.text}", flush=True)
        self._told = len(demo_state.story)
        counts = f"executions: {executions(demo_state)} | workers: {workers(demo_state)} | pool: {pool(demo_state)}"
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


def executions(demo_state: DemoState) -> str:
    """Say how many executions have not ended, and how many have."""
    left = demo_state.started - demo_state.succeeded - demo_state.failed
    parts = [f"{left} open", f"{demo_state.succeeded} succeeded"]
    return ", ".join(parts + ([f"{demo_state.failed} NOT SUCCEEDED"] if demo_state.failed else []))


def workers(demo_state: DemoState) -> str:
    """Say how many workers are in each state that any is in."""
    counts = ", ".join(f"{number} {state}" for state, number in demo_state.workers.items() if number) or "none"
    return f"{counts}; {demo_state.replicas} of 0..{plan.MAX_WORKERS} replicas"


def pool(demo_state: DemoState) -> str:
    """Say whether the pool is Ready, and why."""
    said = demo_state.ready
    if not said:
        return "the operator has not looked at it yet"
    verdict = {"True": "Ready", "False": "NOT READY"}.get(said["status"], "not known yet")
    message = said.get("message", "")
    return f"{verdict} ({said['reason']})" + (f": {message}" if message else "")


def panel(demo_state: DemoState, now: float) -> RenderableType:
    """Draw the state as it is at `now`."""
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column(style="bright_black", no_wrap=True)
    rows.add_column(ratio=1)
    done = demo_state.succeeded + demo_state.failed
    bar = ProgressBar(total=plan.EXECUTIONS, completed=done, width=BAR_WIDTH)
    marks = Text.from_markup("".join(f"{MARKS[state]} [/]" * number for state, number in demo_state.workers.items()))
    rows.add_row("executions", bar)
    rows.add_row("", Text(executions(demo_state)))
    rows.add_row("workers", Group(marks, Text(workers(demo_state))))
    rows.add_row("replicas", Text(curve(demo_state, now), style="cyan"))
    rows.add_row("pool", Text(pool(demo_state), style="" if demo_state.ready.get("status") == "True" else "yellow"))
    rows.add_row("emulator", Text(demo_state.problem or "answers", style="bold red" if demo_state.problem else ""))
    clock = "" if demo_state.began is None else f"{now - demo_state.began:.0f} s since the first execution"
    framed = Panel(
        Group(rows, Text(), *_story(demo_state, now)), title="ActivityPool on Step Functions", subtitle=clock,
        border_style="cyan",
    )  # fmt: skip
    return Padding(framed, (0, ECHO_WIDTH, 0, 0))


def curve(demo_state: DemoState, now: float) -> str:
    """Draw the replicas from the first execution until now, a character for each part of the time."""
    if demo_state.began is None:
        return ""
    span = max(now - demo_state.began, BAR_WIDTH / 4)
    moments = (demo_state.began + span * (place + 1) / BAR_WIDTH for place in range(BAR_WIDTH))
    sizes = [next((size for at, size in reversed(demo_state.sizes) if at <= one), 0) for one in moments if one <= now]
    return "".join(_BLOCKS[min(8, round(8 * size / plan.MAX_WORKERS))] for size in sizes)


def _story(demo_state: DemoState, now: float) -> list[Text]:
    lines = [
        Text(f"{now - said.at:6.1f} s ago  ", style="bright_black", no_wrap=True, overflow="ellipsis").append(
            said.text, style="red" if said.bad else "default"
        )
        for said in demo_state.story[-SHOWN:]
    ]
    return lines + [Text()] * (SHOWN - len(lines))
