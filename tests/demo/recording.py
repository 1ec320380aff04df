"""Records the demo's panel as an animated SVG: a film of frames, moved through a window of one frame by CSS.

A text that stands in several frames is written once, so that a run of 90 s stays below 150 KB.
"""

from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME

from tests.demo.demo_state import DemoState
from tests.demo.screen import Screen, panel

COLUMNS = 100
#: Seconds of the run from one frame to the next, seconds for which a frame is shown, and the last one in addition.
FRAME_SECONDS, SHOWN_SECONDS, LAST_SECONDS = 2.0, 0.5, 4.0
#: Pixels of a character, from a line's text to the next line, and of the margin around the panel.
WIDTH, HEIGHT, BELOW, MARGIN = 8, 18, 4, 10
FONT = "13px Menlo,Consolas,'DejaVu Sans Mono',monospace"

#: A place for a text in a frame: column, line, and the SVG text without its place.
Piece = tuple[int, int, str]


class Recorder:
    """A screen that shows each state on another screen, and keeps a frame of it every FRAME_SECONDS."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._console = Console(width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
        self._frames: list[list[Piece]] = []
        self._kept_at = float("-inf")
        self._last: tuple[DemoState, float] | None = None

    def show(self, demo_state: DemoState, now: float) -> None:
        """Show the state, and keep a frame of it if the last frame is old enough."""
        self._screen.show(demo_state, now)
        self._last = (demo_state, now)
        if now - self._kept_at >= FRAME_SECONDS:
            self._keep(demo_state, now)

    def write(self, path: Path) -> None:
        """Write the frames, and the last state as the last of them. Raises ValueError if there was none."""
        if self._last is None:
            raise ValueError("nothing was shown, so there is no frame to write")
        self._keep(*self._last)
        path.write_text(film(self._frames), encoding="utf-8")

    def _keep(self, demo_state: DemoState, now: float) -> None:
        self._frames.append(list(_pieces(self._console.render_lines(panel(demo_state, now)))))
        self._kept_at = now


def film(frames: Sequence[Sequence[Piece]]) -> str:
    """Return the SVG of frames. A text that stands in several places or frames is written once."""
    lines = 1 + max(line for frame in frames for _, line, _ in frame)
    width, height = COLUMNS * WIDTH + 2 * MARGIN, lines * HEIGHT + 2 * MARGIN
    texts = dict.fromkeys(text for frame in frames for _, _, text in frame)
    names = {text: f"t{number}" for number, text in enumerate(texts)}
    defined = "".join(text.replace("<text", f'<text id="{name}"', 1) for text, name in names.items())
    pictures = "".join(
        f'<g transform="translate({MARGIN},{number * height + MARGIN})">{"".join(_placed(frame, names))}</g>'
        for number, frame in enumerate(frames)
    )
    seconds = len(frames) * SHOWN_SECONDS + LAST_SECONDS
    moves = "".join(
        f"{100 * number * SHOWN_SECONDS / seconds:.3f}%{{transform:translateY({-number * height}px)}}"
        for number in range(len(frames))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        "<title>make demo: a pool of workers goes from zero to ten and back</title>"
        "<style>"
        f"text{{font:{FONT};fill:{SVG_EXPORT_THEME.foreground_color.hex};white-space:pre}}"
        f"@keyframes film{{{moves}100%{{transform:translateY({-(len(frames) - 1) * height}px)}}}}"
        f"#film{{animation:film {seconds:g}s step-end infinite}}"
        "</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{SVG_EXPORT_THEME.background_color.hex}"/>'
        f'<defs>{defined}</defs><g id="film">{pictures}</g></svg>\n'
    )


def _placed(frame: Sequence[Piece], names: dict[str, str]) -> Iterator[str]:
    for column, line, text in frame:
        yield f'<use href="#{names[text]}" x="{column * WIDTH}" y="{(line + 1) * HEIGHT - BELOW}"/>'


def _pieces(rows: Sequence[Sequence[Segment]]) -> Iterator[Piece]:
    """Yield what stands in the rows of a frame, one piece for each style; blanks are left out."""
    for line, row in enumerate(rows):
        column = 0
        for segment in Segment.simplify(row):
            text = segment.text.strip()
            if text:
                yield column + cell_len(segment.text) - cell_len(segment.text.lstrip()), line, _svg(text, segment.style)
            column += segment.cell_length


def _svg(text: str, style: Style | None) -> str:
    """Return a text with the colour and weight of its style, as wide as its characters in a terminal."""
    look = f' textLength="{cell_len(text) * WIDTH}"'
    if style is not None and style.color is not None and not style.color.is_default:
        look += f' style="fill:{style.color.get_truecolor(SVG_EXPORT_THEME).hex}"'
    if style is not None and style.bold:
        look += ' font-weight="bold"'
    return f"<text{look}>{escape(text)}</text>"
