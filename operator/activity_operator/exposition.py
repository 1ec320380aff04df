"""Prometheus' text format for the series of thousands of pools.

For the 200,000 series of 5,000 pools `prometheus_client.generate_latest` takes 1.9 s of processor time, because it
sorts, escapes and joins the labels of each, and the main loop waits for the interpreter's lock meanwhile. Here the
labels of a pool are made once for all its series.
"""

from collections.abc import Iterable

from activity_operator.cluster.resources import Key

#: A series of a family: its labels as text, and its number.
Series = Iterable[tuple[str, float]]


def pool_labels(key: Key) -> str:
    """Return the labels of a pool's series. Names in Kubernetes have no character that must be escaped."""
    namespace, name = key
    return f'activitypool="{name}",namespace="{namespace}"'


def label_value(value: str) -> str:
    """Return a label's value as it stands between quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def metric_text(name: str, kind: str, text: str, series: Series) -> str:
    """Return a family of series: its help text, its kind (`gauge` or `counter`), and a line for each series."""
    return metric_header(name, kind, text) + lines(name, series)


def metric_header(name: str, kind: str, text: str) -> str:
    """Return the two lines before a family's series."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def lines(name: str, series: Series) -> str:
    """Return a line for each series."""
    return "".join([f"{name}{{{labels}}} {number}\n" for labels, number in series])
