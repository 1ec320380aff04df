"""Records the demo's panel as an animated SVG: a film of frames, moved through a window of one frame by CSS.

Rows that are equal in several frames are written once, so that a run of two minutes stays below 150 KB.
"""

from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME

from tests.demo.scene import Scene
from tests.demo.screen import Screen, panel

COLUMNS = 100
#: Seconds of the run from one frame to the next, seconds for which a frame is shown, and the last one in addition.
FRAME_SECONDS, SHOWN_SECONDS, LAST_SECONDS = 2.0, 0.5, 4.0
#: Pixels of a character, and of the margin around the panel.
WIDTH, HEIGHT, MARGIN = 8, 18, 10

Row = Sequence[Segment]


class Recorder:
    """A screen that shows each scene on another screen, and keeps a frame of it every FRAME_SECONDS."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._console = Console(width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
        self._frames: list[list[str]] = []
        self._kept_at = float("-inf")
        self._last: tuple[Scene, float] | None = None

    def show(self, scene: Scene, now: float) -> None:
        """Show the scene, and keep a frame of it if the last frame is old enough."""
        self._screen.show(scene, now)
        self._last = (scene, now)
        if now - self._kept_at >= FRAME_SECONDS:
            self._keep(scene, now)

    def write(self, path: Path) -> None:
        """Write the frames, and the last scene shown as the last of them. Raises ValueError if there was no scene."""
        if self._last is None:
            raise ValueError("nothing was shown, so there is no frame to write")
        self._keep(*self._last)
        path.write_text(film(self._frames), encoding="utf-8")

    def _keep(self, scene: Scene, now: float) -> None:
        self._frames.append([_row(row) for row in self._console.render_lines(panel(scene, now), pad=True)])
        self._kept_at = now


def film(frames: Sequence[Sequence[str]]) -> str:
    """Return the SVG of frames, each a list of the contents of SVG texts."""
    rows = max(map(len, frames))
    width, height = COLUMNS * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
    names = {row: f"r{number}" for number, row in enumerate(dict.fromkeys(row for frame in frames for row in frame))}
    texts = (
        f'<text id="{name}" textLength="{COLUMNS * WIDTH}" lengthAdjust="spacingAndGlyphs">{row}</text>'
        for row, name in names.items()
    )
    pictures = (
        f'<g transform="translate({MARGIN},{number * height + MARGIN})">{"".join(_used(frame, names))}</g>'
        for number, frame in enumerate(frames)
    )
    seconds = len(frames) * SHOWN_SECONDS + LAST_SECONDS
    moves = "".join(
        f"{100 * number * SHOWN_SECONDS / seconds:.3f}%{{transform:translateY({-number * height}px)}}"
        for number in range(len(frames))
    )
    theme = SVG_EXPORT_THEME
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        "<title>make demo: a pool of workers goes from zero to ten and back</title>"
        "<style>"
        f"text{{font:14px Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{theme.foreground_color.hex};"
        "white-space:pre}"
        f"@keyframes film{{{moves}100%{{transform:translateY({-(len(frames) - 1) * height}px)}}}}"
        f"#film{{animation:film {seconds:g}s step-end infinite}}"
        "</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{theme.background_color.hex}"/>'
        f'<defs>{"".join(texts)}</defs><g id="film">{"".join(pictures)}</g></svg>\n'
    )  # fmt: skip


def _used(frame: Sequence[str], names: dict[str, str]) -> Iterator[str]:
    for line, row in enumerate(frame, start=1):
        yield f'<use href="#{names[row]}" y="{line * HEIGHT - 4}"/>'


def _row(segments: Row) -> str:
    """Return a row as the content of an SVG text; neighbours of one style are one span."""
    parts = (_span(segment.text, segment.style) for segment in Segment.simplify(segments))
    return "".join(parts)


def _span(text: str, style: Style | None) -> str:
    if style is None or not text.strip():
        return escape(text)
    look = []
    if style.color is not None and not style.color.is_default:
        look.append(f'fill="{style.color.get_truecolor(SVG_EXPORT_THEME).hex}"')
    if style.bold:
        look.append('font-weight="bold"')
    return f"<tspan {' '.join(look)}>{escape(text)}</tspan>" if look else escape(text)
