"""The list of benchmarks. A module is imported only when its benchmark is chosen."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from tests.bench.table import Row


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: its name on the command line, its module (with `run() -> list[Row]`), and what it measures.

    One that takes long runs only if it is named.
    """

    name: str
    module: str
    about: str
    takes_long: bool = False

    def load(self) -> Callable[[], Sequence[Row]]:
        """Import the module and return its `run`."""
        return cast("Callable[[], Sequence[Row]]", importlib.import_module(self.module).run)


BENCHMARKS = (
    Benchmark(
        "worker-throughput",
        "tests.bench.worker_throughput",
        "no-op tasks a second and core, beside boto3 threads and aiobotocore",
    ),
    Benchmark(
        "swf-throughput",
        "tests.bench.swf_throughput",
        "no-op activity tasks of Amazon SWF a second and core, beside boto3 threads",
    ),
    Benchmark(
        "worker-start",
        "tests.bench.worker_start",
        "from the start of a worker to its first poll, and its processor time; sizes of the images",
    ),
    Benchmark(
        "library-sizes",
        "tests.bench.library_sizes",
        "what boto3 takes in the environment of handlers, whole and trimmed (no server)",
    ),
    Benchmark(
        "worker-heartbeats",
        "tests.bench.worker_heartbeats",
        "1,000 task heartbeats every 10 s beside handlers that hold the interpreter",
    ),
    Benchmark(
        "redis-throughput",
        "tests.bench.redis_throughput",
        "jobs of a Redis queue a second and core, beside Dramatiq, arq and Celery",
    ),
    Benchmark(
        "steps",
        "tests.bench.steps_throughput",
        "steps of durable tasks a second on SQLite and PostgreSQL beside DBOS, and how soon a new task starts",
    ),
    Benchmark(
        "broker",
        "tests.bench.broker_throughput",
        "tasks a second through a taskbroker on both stores, and a claim beside a million pending tasks",
    ),
    Benchmark(
        "broker-peers",
        "tests.bench.broker_peers",
        "tasks a second of one worker process at a taskbroker, and how soon a task starts, beside Dramatiq and Celery",
    ),
    Benchmark(
        "operator-arrival",
        "tests.bench.operator_arrival",
        "a task, and a burst of 40, at an empty pool: how long until replicas are written (local cluster)",
    ),
    Benchmark(
        "operator-at-rest",
        "tests.bench.operator_at_rest",
        "500 pools at zero: API requests, memory, processor time (local cluster)",
    ),
    Benchmark(
        "operator-looks",
        "tests.bench.operator_looks",
        "processor time of one look at an active pool of 4 to 1,000 pods (no server)",
    ),
    Benchmark(
        "operator-fleet",
        "tests.bench.operator_fleet",
        "5,000 pools: the main loop's longest standstill, and the writes after a failed TokenReview (no server)",
    ),
    Benchmark(
        "operator-thousands",
        "tests.bench.operator_thousands",
        "5,000 pools on a real API server: time to settle, standstill, writes, memory and processor at rest (10 min)",
        takes_long=True,
    ),
    Benchmark(
        "scaling-goals",
        "tests.bench.scaling_goals",
        "waits and worker-seconds in virtual time beside KEDA, KPA and HPA, and which goals they meet (1 h, no server)",
        takes_long=True,
    ),
    Benchmark(
        "lease-records",
        "tests.bench.lease_records",
        "writes and bytes of a task lease in a Secret of its own, and in one that several leases share (no server)",
        takes_long=True,
    ),
    Benchmark(
        "redis-operator",
        "tests.bench.redis_operator",
        "500 pools on the queues of one Redis server: a job, and 20, until replicas are written; what counting costs "
        "(local cluster)",
    ),
    Benchmark(
        "swf-operator",
        "tests.bench.swf_operator",
        "task lists of Amazon SWF within its quota: the oldest of 200 counts, and a task at an empty pool until "
        "replicas are written, alone and beside 40 pools (an API server of its own)",
    ),
)


def choose(names: Sequence[str]) -> list[Benchmark]:
    """Return the named benchmarks in the table's order; without names all but those that take long.

    Raises KeyError with the unknown names.
    """
    known = {benchmark.name for benchmark in BENCHMARKS}
    if unknown := [name for name in names if name not in known]:
        raise KeyError(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(b.name for b in BENCHMARKS)}")
    return [benchmark for benchmark in BENCHMARKS if (benchmark.name in names if names else not benchmark.takes_long)]
