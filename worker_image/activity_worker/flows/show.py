"""PURE: queues and jobs as text for people. Only a command that names a job shows its values."""

from collections.abc import Sequence

from activity_worker.flows.job import Job
from activity_worker.wire import redis_keys as keys

#: Longest value in the list of a job's fields, in characters.
SHORT = 100


def queues(rows: Sequence[tuple[str, int, int, int]]) -> str:
    """Return a table of queues: name, jobs that wait, are under way, are under way without a lock."""
    titles = ("queue", "waiting", "processing", "without a lock")
    width = max(len(row[0]) for row in [titles, *rows])
    lines = [f"{name:<{width}}  {waiting:>9}  {under_way:>10}  {lost:>14}" for name, waiting, under_way, lost in rows]
    head = f"{titles[0]:<{width}}  {titles[1]:>9}  {titles[2]:>10}  {titles[3]:>14}"
    return "\n".join([head, *lines])


def job(seen: Job, indent: str = "") -> str:
    """Return where a job is, its fields, and its children below it."""
    where = f" in {seen.queue}" if seen.queue else ""
    lines = [f"{indent}{seen.id}  {seen.state}{where}"]
    if seen.failure is not None:
        lines.append(f"{indent}  failed: {seen.failure.message}")
    lines += [f"{indent}  {name}: {_short(keys.encode(value))}" for name, value in seen.data.items()]
    lines += [job(child, indent + "    ") for child in seen.children]
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= SHORT else text[: SHORT - 3] + "..."
