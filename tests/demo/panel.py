"""The scene as one panel of a terminal. Pure: a scene and a time in, something to draw out."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tests.demo import plan, telling
from tests.demo.happenings import Happening
from tests.demo.scene import Scene, State

#: How many of the last happenings are shown.
SHOWN = 9
BAR_WIDTH = 60
#: Room at the right for a terminal's `^C`: on a line of its own it would shift the next picture.
ECHO_WIDTH = 3
STYLES = {
    State.STARTING: ("◌", "yellow"),
    State.BUSY: ("●", "bold green"),
    State.IDLE: ("○", "green"),
    State.DRAINING: ("◍", "blue"),
    State.LEAVING: ("·", "bright_black"),
}


def panel(scene: Scene, now: float) -> RenderableType:
    """Draw the scene as it is at `now`."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bright_black", no_wrap=True)
    rows.add_column(ratio=1)
    rows.add_row("executions", Group(_executions(scene), Text(telling.executions(scene))))
    rows.add_row("workers", Group(_workers(scene), Text(telling.workers(scene))))
    rows.add_row("replicas", _replicas(scene, now))
    rows.add_row("operator", _operator(scene, now))
    rows.add_row("pool", Text(telling.pool(scene), style="" if scene.pool.ready == "True" else "yellow"))
    if scene.problem:
        rows.add_row("emulator", Text(scene.problem, style="bold red"))
    rows.add_row("now", Text(telling.phase(scene), style="italic"))
    title = "ActivityPool on Step Functions"
    clock = "" if scene.began is None else f"{now - scene.began:.0f} s since the first execution"
    framed = Panel(Group(rows, Text(), *_story(scene, now)), title=title, subtitle=clock, border_style="cyan")
    return Padding(framed, (0, ECHO_WIDTH, 0, 0))


def _executions(scene: Scene) -> Text:
    cells = BAR_WIDTH / plan.EXECUTIONS
    bar, drawn, total = Text(), 0, 0
    for count, glyph, style in (
        (scene.succeeded, "█", "green"),
        (scene.failed, "█", "bold red"),
        (scene.running, "▓", "bold yellow"),
        (plan.EXECUTIONS - scene.succeeded - scene.failed - scene.running, "░", "bright_black"),
    ):
        total += count
        bar.append(glyph * (round(total * cells) - drawn), style=style)
        drawn = round(total * cells)
    return bar


def _workers(scene: Scene) -> Text:
    bar = Text()
    for state in State:
        glyph, style = STYLES[state]
        bar.append(f"{glyph} " * scene.count(state), style=style)
    bar.append("- " * (plan.MAX_WORKERS - len(scene.pods)), style="bright_black")
    return bar


def _replicas(scene: Scene, now: float) -> Text:
    text = Text(f"{scene.replicas:>2} of 0..{plan.MAX_WORKERS}  ")
    return text.append(telling.curve(scene, now, BAR_WIDTH - len(text)), style="cyan")


def _operator(scene: Scene, now: float) -> Text:
    if not scene.said:
        return Text("has said nothing yet", style="bright_black")
    return Text(scene.said).append(f"  {now - scene.said_at:.0f} s ago", style="bright_black")


def _story(scene: Scene, now: float) -> list[Text]:
    lines = [_line(happening, now) for happening in scene.story[-SHOWN:]]
    return lines + [Text()] * (SHOWN - len(lines))


def _line(happening: Happening, now: float) -> Text:
    line = Text(f"{now - happening.at:6.1f} s ago  ", style="bright_black", no_wrap=True, overflow="ellipsis")
    return line.append(happening.text, style="red" if happening.bad else "default")
