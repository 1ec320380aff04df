"""PURE: a job at one moment: its fields, the queue that has it, and its state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from activity_worker.wire import redis_keys as keys

_OWN = frozenset({keys.COMPLETED_QUEUE, keys.DONE, keys.FAILED, keys.FAILED_QUEUE, keys.FAILED_ERROR})


class JobState(StrEnum):
    """Where a job is."""

    #: In a queue's waiting list.
    WAITING = "waiting"
    #: A worker has it, or had it when it died.
    PROCESSING = "processing"
    #: No queue has it, and the last one completed it.
    COMPLETED = "completed"
    #: A worker function raised, or a lock ran out.
    FAILED = "failed"
    #: Its hash is there, but no queue has it and none has completed it: it was taken out by hand.
    ADRIFT = "adrift"
    #: There is no such job, or it is no longer kept.
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, and in which queue; the original's monitor does not say the queue."""

    message: str
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment. `queue` is the one that has it, or else had it last; `done` is the job's own field.

    `fields` are all values of its hash, what it was made with and what workers returned; `children` are there if they
    were asked for.
    """

    id: str
    flow: str
    state: JobState
    queue: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    failure: Failure | None = None
    children: "tuple[Job, ...]" = ()

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.state not in {JobState.WAITING, JobState.PROCESSING}

    @property
    def done(self) -> bool:
        """Whether its `done` says so: a parent waits for that of its children."""
        return is_true(self.fields.get(keys.DONE))

    @property
    def completed_queue(self) -> str | None:
        """The last queue that completed it."""
        value = self.fields.get(keys.COMPLETED_QUEUE)
        return value if isinstance(value, str) else None

    @property
    def data(self) -> dict[str, Any]:
        """The fields that the queues themselves did not write: what it was made with, and results."""
        return {name: value for name, value in self.fields.items() if name not in _OWN}

    def child_keys(self) -> list[str]:
        """Return the keys of its children, of every parent queue that it has been through."""
        found: list[str] = []
        for name, value in self.fields.items():
            if name.startswith("children:") and name.endswith(":jobs") and isinstance(value, list):
                found += [key for key in value if isinstance(key, str)]
        return found


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job's fields at one moment, and the queues whose waiting and processing lists hold the job."""

    fields: Mapping[str, Any]
    waiting: Sequence[str] = ()
    processing: Sequence[str] = ()


def job_of(flow: str, job_id: str, snapshot: JobSnapshot) -> Job:
    """Return the job of a snapshot, with its state.

    A job in a waiting list runs again, whatever its own fields say. A failed job may still be on a processing list: the
    worker that failed it removes it a moment later, or died before that.
    """
    fields = snapshot.fields
    completed = fields.get(keys.COMPLETED_QUEUE)
    failure = _failure(fields) if is_true(fields.get(keys.FAILED)) else None
    if snapshot.waiting:
        return Job(job_id, flow, JobState.WAITING, snapshot.waiting[0], fields)
    if failure is not None:
        return Job(
            job_id, flow, JobState.FAILED, failure.queue or next(iter(snapshot.processing), None), fields, failure
        )
    if snapshot.processing:
        return Job(job_id, flow, JobState.PROCESSING, snapshot.processing[0], fields)
    if isinstance(completed, str):
        return Job(job_id, flow, JobState.COMPLETED, completed, fields)
    return Job(job_id, flow, JobState.ADRIFT if fields else JobState.MISSING, None, fields)


def is_true(value: Any) -> bool:
    """Whether a field is true, or "true", as the original library's monitor writes it."""
    return value is True or value == "true"


def child_of(key: str) -> tuple[str, str]:
    """Return the flow and the id of the job whose key this is; raises `ValueError`."""
    prefix, _, rest = key.partition(":")
    flow, separator, job_id = rest.rpartition(":")
    if prefix != "job" or not separator:
        raise ValueError(f"{key!r} is not the key of a job, such as job:PARENT:CHILD:ID")
    return flow, job_id


def _failure(fields: Mapping[str, Any]) -> Failure:
    message, queue = fields.get(keys.FAILED_ERROR), fields.get(keys.FAILED_QUEUE)
    return Failure(message if isinstance(message, str) else "", queue if isinstance(queue, str) else None)
