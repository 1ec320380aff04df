"""Prometheus' text format for the series of thousands of pools.

`prometheus_client.generate_latest` takes 1.9 s of processor time for 200,000 series, because it sorts, joins and escapes
the labels of each; the main loop waits for the interpreter's lock meanwhile. Here the labels of a pool are text already.
"""

from collections.abc import Iterable

from activity_operator.cluster.resources import Key

#: A series of a family: its labels as text, and its number.
Series = Iterable[tuple[str, float]]


def pool_labels(key: Key) -> str:
    """Return the labels of a pool's series. Names in Kubernetes have no character that must be escaped."""
    namespace, name = key
    return f'activitypool="{name}",namespace="{namespace}"'


def escaped(value: str) -> str:
    """Return a label's value as it stands between quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def family(name: str, kind: str, text: str, series: Series) -> str:
    """Return a family of series: its help text, its kind (`gauge` or `counter`), and a line for each series."""
    return head(name, kind, text) + lines(name, series)


def head(name: str, kind: str, text: str) -> str:
    """Return the two lines before a family's series."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def lines(name: str, series: Series) -> str:
    """Return a line for each series."""
    return "".join([f"{name}{{{labels}}} {number}\n" for labels, number in series])
