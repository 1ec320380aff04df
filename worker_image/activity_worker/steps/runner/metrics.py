"""Prometheus metrics of multi-step tasks. Labels are a task's name, a sub-step and small enumerations: no ids."""

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from activity_worker.steps.model.instance import Instance, Lost, Outcome
from activity_worker.steps.runner.observer import CallSummary, RunObserver, summarize_call

#: From a look into a table to half an hour.
CALL_BUCKETS_SECONDS: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
#: A claim is one or two statements.
CLAIM_BUCKETS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
#: From an announced instance, taken at once, to a backlog without a runner.
DELAY_BUCKETS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 15, 60, 300, 1800, 7200)
#: The label of a task that is none of those known here.
OTHER: Final = "other"


class StepMetrics(RunObserver):
    """Counts in `registry` what runners do; a task that `set_tasks` did not name is counted as `other`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tasks: frozenset[str] = frozenset()
        self._calls = Counter(
            "activity_worker_step_calls",
            "Calls of methods that ended or were lost, by task, sub-step and outcome.",
            ["task", "sub_step", "outcome"],
            registry=registry,
        )
        self._durations = Histogram(
            "activity_worker_step_call_duration_seconds",
            "Time that calls of methods took, by sub-step.",
            ["sub_step"],
            buckets=CALL_BUCKETS_SECONDS,
            registry=registry,
        )
        self._retries = Counter(
            "activity_worker_step_retries",
            "Calls that failed or were lost and are tried again, by task and sub-step.",
            ["task", "sub_step"],
            registry=registry,
        )
        self._reversals = Counter(
            "activity_worker_instance_reversals",
            "Instances that were turned back, so that their completed steps are reversed, by task.",
            ["task"],
            registry=registry,
        )
        self._completions = Counter(
            "activity_worker_instances",
            "Instances that became complete here, by task and outcome.",
            ["task", "outcome"],
            registry=registry,
        )
        self._claims = Histogram(
            "activity_worker_instance_claim_duration_seconds",
            "How long it took to take an instance in the store.",
            buckets=CLAIM_BUCKETS_SECONDS,
            registry=registry,
        )
        self._delays = Histogram(
            "activity_worker_instance_start_delay_seconds",
            "Time from when an instance was due to when it was taken.",
            buckets=DELAY_BUCKETS_SECONDS,
            registry=registry,
        )

    def set_tasks(self, tasks: Collection[str]) -> None:
        """Say which tasks are run here; their counts begin at nought."""
        self._tasks = frozenset(tasks)
        for task in self._tasks:
            for outcome in ("succeeded", "failed"):
                self._completions.labels(task, outcome)
            self._reversals.labels(task)

    def claimed(self, before: Instance, after: Instance, now: float, took_seconds: float) -> None:
        """Count a claim, and the call that was lost with the runner before."""
        self._claims.observe(took_seconds)
        if before.next_run_time is not None:
            self._delays.observe(max(now - before.next_run_time, 0.0))
        if before.status.running:
            self.count_call(summarize_call(before, Lost(), after, 0.0))

    def called(self, before: Instance, outcome: Outcome, after: Instance, seconds: float) -> None:
        """Count a call."""
        self.count_call(summarize_call(before, outcome, after, seconds))

    def count_call(self, note: CallSummary) -> None:
        """Count a call of which only the note is here."""
        task = note.task if note.task in self._tasks else OTHER
        self._calls.labels(task, note.sub_step, note.outcome).inc()
        if note.outcome != "lost":
            self._durations.labels(note.sub_step).observe(note.seconds)
        if note.again:
            self._retries.labels(task, note.sub_step).inc()
        if note.turned_back:
            self._reversals.labels(task).inc()
        if note.completed:
            self._completions.labels(task, note.completed).inc()
