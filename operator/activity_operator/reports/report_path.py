"""PURE: when the reports of many workers stop at once, their report path counts as degraded, not the workers.

A common silence is attributed to a namespace (its network policies, its CA bundle), to a node (its network), or to the
operator's own side if most namespaces are silent.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from activity_operator.core.observation import WorkerFacts
from activity_worker.contract import WorkerState

#: Report intervals without a report after which a worker counts as silent, as for a stalled worker of a pool.
STALLED_INTERVALS = 3
#: Least seconds without a report that count as silence: a slow garbage collection must not count as an outage.
LEAST_SILENCE_SECONDS = 15.0
#: Silences that begin within this many seconds have one cause. Workers that hang one by one begin further apart.
TOGETHER_SECONDS = 10.0
#: Least number of silent workers that proves an outage: two pods of one node often fail together.
LEAST_SILENT = 3
#: Seconds for which an ended silence still counts. After an outage the workers report again one by one: each waits up
#: to 10 s between two tries, and a report may take 5 s.
RECOVERY_SECONDS = 20.0
#: A common silence lasts at most this many `stalled.deadlineSeconds`. After that it is the state of these workers.
LONGEST_DEADLINES = 2
#: Length of the start of a term, in report intervals and at least in seconds: workers must first find the new leader.
TERM_INTERVALS = 2
LEAST_TERM_SECONDS = 5.0


class Scope(Enum):
    """Whose report path is degraded."""

    EVERYWHERE = auto()
    NAMESPACE = auto()
    NODE = auto()


@dataclass(frozen=True, slots=True)
class Silence:
    """A worker's silence: the time of the last report, the report interval, and the time of the next report or None.

    Times are Unix seconds.
    """

    began: float
    interval_seconds: float
    ended: float | None = None

    def counts(self, now: float) -> bool:
        """Whether the silence lasts, or ended less than RECOVERY_SECONDS ago."""
        return self.ended is None or now - self.ended < RECOVERY_SECONDS


@dataclass(frozen=True, slots=True)
class PlacedWorker:
    """A worker with its namespace, its node ("" if unknown) and its silence (None if it reports)."""

    pod_uid: str
    namespace: str
    node: str
    silence: Silence | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A common silence of `silent` of `workers` workers from `since` (Unix seconds) on; `name` is the scope's.

    `pods` are the UIDs of those that are still silent.
    """

    scope: Scope
    name: str
    since: float
    silent: int
    workers: int
    pods: frozenset[str]

    def lasts(self, now: float, deadline_seconds: float) -> bool:
        """Whether the outage explains missing reports of a pool with this `stalled.deadlineSeconds`."""
        return now - self.since < LONGEST_DEADLINES * deadline_seconds

    def covers(self, namespace: str) -> bool:
        """Whether the pools of the namespace keep their size meanwhile."""
        return self.scope is Scope.EVERYWHERE or (self.scope is Scope.NAMESPACE and self.name == namespace)

    def __str__(self) -> str:
        where, effect, check = _WORDS[self.scope]
        return (
            f"{self.silent} of {self.workers} workers{where.format(self.name)} fell silent together: their report path "
            f"is the suspect, so {effect} until they report again, for {LONGEST_DEADLINES} times "
            f"stalled.deadlineSeconds at most; check {check.format(self.name)}"
        )


_WORDS = {
    Scope.EVERYWHERE: (
        "",
        "no pool changes its size and no worker is replaced",
        "the report Service and its certificate",
    ),
    Scope.NAMESPACE: (
        " of namespace {}",
        "no pool of this namespace changes its size and none of its workers is replaced",
        "the NetworkPolicies and the ConfigMap activitypool-ca of namespace {}",
    ),
    Scope.NODE: (" on node {}", "none of these workers is replaced", "the network of node {}"),
}


def silence(worker: WorkerFacts, until: float) -> Silence | None:
    """Return the worker's silence at the time `until`, None if its last report was recent or the worker had stopped."""
    limit_seconds = max(STALLED_INTERVALS * worker.interval_seconds, LEAST_SILENCE_SECONDS)
    if worker.state is WorkerState.STOPPED or until - worker.reported_at < limit_seconds:
        return None
    return Silence(worker.reported_at, worker.interval_seconds)


def find_outages(workers: Sequence[PlacedWorker]) -> tuple[Outage, ...]:
    """Return the common silences, the widest scope first. `workers` include those whose silence ended just now."""
    if sum(worker.silence is not None for worker in workers) < LEAST_SILENT:
        return ()
    found = [*_everywhere(workers)]
    for namespace, members in _grouped(workers, lambda worker: worker.namespace).items():
        found += _outages(Scope.NAMESPACE, namespace, members)
    for node, members in _grouped(workers, lambda worker: worker.node).items():
        if node:
            found += (one for one in _outages(Scope.NODE, node, members) if _most_namespaces(one, members))
    return tuple(found)


def new_term_problem(now: float, leader_since: float, interval_seconds: float, expected_workers: int) -> str:
    """Return a sentence within two report intervals of a new term, if any worker is expected to report, else ""."""
    limit_seconds = max(TERM_INTERVALS * interval_seconds, LEAST_TERM_SECONDS)
    if not expected_workers or now - leader_since >= limit_seconds:
        return ""
    return f"this replica has led for less than {limit_seconds:.0f} s, so workers may not have found it yet"


def _everywhere(workers: Sequence[PlacedWorker]) -> Iterator[Outage]:
    """Yield the outages of more than half of all workers and more than half of the namespaces, of two at least."""
    if len({worker.namespace for worker in workers}) > 1:
        yield from (one for one in _outages(Scope.EVERYWHERE, "", workers) if _most_namespaces(one, workers))


def _most_namespaces(outage: Outage, workers: Sequence[PlacedWorker]) -> bool:
    """Whether more than half of the workers' namespaces are silent, each with more than half of its workers.

    Otherwise one tenant with most of the workers would count as an outage of all tenants.
    """
    present = [worker for worker in workers if not _silent_before(worker, outage.since)]
    silent = Counter(worker.namespace for worker in present if worker.silence is not None)
    sizes = Counter(worker.namespace for worker in present)
    return 2 * sum(2 * silent[namespace] > size for namespace, size in sizes.items()) > len(sizes)


def _outages(scope: Scope, name: str, workers: Sequence[PlacedWorker]) -> Iterator[Outage]:
    """Yield each group of silences that began together, if it has more than half of the workers that then reported."""
    silent = sorted(
        ((worker.silence, worker) for worker in workers if worker.silence is not None), key=lambda pair: pair[0].began
    )
    begins = [one.began for one, _ in silent]
    first, reporting = 0, len(workers)
    while len(silent) - first >= LEAST_SILENT:
        end = bisect_right(begins, begins[first] + _window(silent[first][0]))
        many = end - first >= LEAST_SILENT and 2 * (end - first) > reporting
        group = silent[first : end if many else first + 1]
        lasting = frozenset(worker.pod_uid for one, worker in group if one.ended is None)
        if many and lasting:
            yield Outage(scope, name, begins[first], len(group), reporting, lasting)
        first += len(group)
        reporting -= len(lasting)


def _window(one: Silence) -> float:
    return max(TOGETHER_SECONDS, 2 * one.interval_seconds)


def _silent_before(worker: PlacedWorker, began: float) -> bool:
    return worker.silence is not None and worker.silence.ended is None and worker.silence.began < began


def _grouped(
    workers: Iterable[PlacedWorker], name_of: Callable[[PlacedWorker], str]
) -> Mapping[str, list[PlacedWorker]]:
    groups: dict[str, list[PlacedWorker]] = defaultdict(list)
    for worker in workers:
        groups[name_of(worker)].append(worker)
    return groups
