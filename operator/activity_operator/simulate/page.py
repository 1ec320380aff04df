"""PURE: one HTML page with the tables and a plot of each policy, without scripts and without other files."""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from activity_operator.simulate.results import Result, Sample
from activity_operator.simulate.table import COLUMNS, Outcome, cells, headline

#: Size of a plot, and the margins for its numbers, in pixels.
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 170, 44, 18
#: Most points of a line; of the samples between two points the highest is drawn.
POINTS = 450

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --paper: #fff; --busy: #9bc7f5; --pods: #1f6feb;
  --wanted: #d29922; --waiting: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #8b949e; --paper: #0d1117; --busy: #1d3f66; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 960px;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--soft); }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.busy { fill: var(--busy); } .pods { stroke: var(--pods); } .wanted { stroke: var(--wanted); stroke-dasharray: 4 3; }
.waiting { stroke: var(--waiting); } polyline { fill: none; stroke-width: 1.5; } .axis { stroke: var(--soft); }
.key span { margin-right: 1.2rem; } figure { margin: 1rem 0; } figcaption { font-weight: 600; }
.box { display: inline-block; width: .8em; height: .8em; margin-right: .3em; vertical-align: -.05em; }
"""
_KEY = (
    ("busy", "busy workers"),
    ("pods", "pods"),
    ("wanted", "wanted workers"),
    ("waiting", "waiting tasks"),
)


def as_page(outcomes: Sequence[Outcome], title: str, slots: int) -> str:
    """Return the page. `slots` turns busy slots and waiting tasks into workers, so that one axis fits all lines."""
    body = "\n".join(_section(outcome, slots) for outcome in outcomes)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{_legend()}\n{body}\n</body></html>\n"
    )


def _legend() -> str:
    spans = "".join(f'<span><i class="box" style="background: var(--{name})"></i>{text}</span>' for name, text in _KEY)
    return f'<p class="key">{spans}</p>'


def _section(outcome: Outcome, slots: int) -> str:
    plots = "\n".join(_figure(result, outcome.results, slots) for result in outcome.results if result.samples)
    return f"<section><h2>{escape(headline(outcome.trace))}</h2>\n{_table(outcome)}\n{plots}</section>"


def _table(outcome: Outcome) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(result)) + "</tr>" for result in outcome.results
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _figure(result: Result, all_results: Sequence[Result], slots: int) -> str:
    """Return the plot of one policy; all policies of a trace have the same axes."""
    seconds = max((one.samples[-1].at for one in all_results if one.samples), default=1.0) or 1.0
    most = max(max((sample.pods for sample in one.samples), default=1) for one in all_results) or 1
    samples = _thinned(result.samples)
    lines = "".join(_lines(samples, seconds, most, slots))
    return (
        f"<figure><figcaption>{escape(result.policy)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(result.policy)}: workers over time">'
        f"{''.join(_axes(seconds, most))}{lines}</svg></figure>"
    )


def _thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return at most about `POINTS` samples, each with the highest values of those around it."""
    step = max(1, -(-len(samples) // POINTS))
    return [
        Sample(
            part[0].at,
            max(sample.wanted for sample in part),
            max(sample.pods for sample in part),
            max(sample.busy for sample in part),
            max(sample.waiting for sample in part),
        )
        for part in (samples[i : i + step] for i in range(0, len(samples), step))
    ]


def _lines(samples: Sequence[Sample], seconds: float, most: int, slots: int) -> Iterator[str]:
    width, height = WIDTH - LEFT, HEIGHT - BOTTOM

    def points(value: Callable[[Sample], float]) -> str:
        return " ".join(
            f"{LEFT + width * sample.at / seconds:.1f},{height - (height - 8) * min(value(sample) / most, 1.0):.1f}"
            for sample in samples
        )

    busy = points(lambda sample: sample.busy / slots)
    last = LEFT + width * samples[-1].at / seconds
    yield f'<polygon class="busy" points="{LEFT},{height} {busy} {last:.1f},{height}"/>'
    yield f'<polyline class="waiting" points="{points(lambda sample: sample.waiting / slots)}"/>'
    yield f'<polyline class="pods" points="{points(lambda sample: sample.pods)}"/>'
    yield f'<polyline class="wanted" points="{points(lambda sample: sample.wanted)}"/>'


def _axes(seconds: float, most: int) -> Iterator[str]:
    height = HEIGHT - BOTTOM
    yield f'<line class="axis" x1="{LEFT}" y1="{height}" x2="{WIDTH}" y2="{height}"/>'
    yield f'<text x="{LEFT - 6}" y="14" text-anchor="end">{most}</text>'
    yield f'<text x="{LEFT - 6}" y="{height}" text-anchor="end">0</text>'
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "end" if share == 1.0 else "middle"
        x = LEFT + (WIDTH - LEFT) * share
        yield f'<text x="{x:.0f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{seconds * share / 60:.0f} min</text>'
