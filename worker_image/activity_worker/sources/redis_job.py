"""PURE: a job of a Redis queue as a task, and a handler's answer as the fields of its hash."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from activity_worker.errors import DeadlineExceededError, InvalidTaskInputError, InvalidTokenError, SourceError
from activity_worker.wire import redis_keys as keys

_TRACEBACK = "\n\nTraceback (most recent call last):\n"


@dataclass(frozen=True, slots=True)
class RedisQueue:
    """A queue as its workers see it.

    `attributes`: the fields of a job that a handler gets; `next_queue`: where a job goes whose result does not say, ""
    for nowhere; `lock_seconds`: how long a job is a worker's, `renew_lock`: whether that is prolonged while it works;
    `block_seconds`: how long a poll waits for a job.
    """

    flow: str
    name: str
    attributes: tuple[str, ...] = ()
    next_queue: str = ""
    lock_seconds: int = keys.LOCK_SECONDS
    renew_lock: bool = False
    block_seconds: float = keys.BLOCK_SECONDS

    @property
    def lock_for(self) -> int:
        """Seconds for which a lock is set: a little longer than a handler has."""
        return self.lock_seconds + keys.EXTRA_LOCK_SECONDS


@dataclass(frozen=True, slots=True)
class JobLock:
    """A job that is ours. `owner` is new for each lease, so that a worker's own late answer is known as late."""

    queue: str
    job_id: str = field(repr=False)
    owner: str = field(repr=False)

    @property
    def token(self) -> str:
        """The task's token."""
        return json.dumps([self.queue, self.job_id, self.owner])

    @classmethod
    def of(cls, token: str) -> Self:
        """Return the lease that a token stands for; raises `InvalidTokenError`."""
        try:
            queue, job_id, owner = json.loads(token)
            return cls(str(queue), str(job_id), str(owner))
        except (ValueError, TypeError) as error:
            raise InvalidTokenError("InvalidToken", "not a token of a Redis queue") from error


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job as it was leased: whose it is now, and its attributes as they are stored."""

    job_id: str = field(repr=False)
    owner: str = field(repr=False)
    values: list[str | None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class JobResult:
    """A handler's answer: the fields to save, encoded in turn, and the queue that is next ("": none)."""

    pairs: list[str] = field(repr=False)
    next_queue: str


def input_of(job_id: str, attributes: Sequence[str], values: Sequence[str | None]) -> str:
    """Return a task's input: the job's id and attributes as JSON text. An attribute that is absent is null.

    A value that is not JSON makes an input that is none: its task then fails as `InvalidTaskInputError`, with words.
    """
    fields = {"id": keys.encode(job_id)}
    fields |= {name: value if value is not None else "null" for name, value in zip(attributes, values, strict=True)}
    return "{" + ",".join(f"{keys.encode(name)}:{value}" for name, value in fields.items()) + "}"


def result_of(output: str, queue: RedisQueue) -> JobResult:
    """Return what an answer means; raises `SourceError` for one that is not a JSON object. Null is an empty one."""
    value = json.loads(output)
    fields: Any = {} if value is None else value
    if not isinstance(fields, dict):
        words = f"a job's result is a JSON object, whose fields are saved: a handler returned {_kind(fields)}"
        raise SourceError("ResultNotAnObject", words)
    next_queue = fields.pop(keys.NEXT_QUEUE, None)
    if next_queue is not None and not isinstance(next_queue, str):
        words = f"{keys.NEXT_QUEUE} of a job's result is the name of a queue, not {_kind(next_queue)}"
        raise SourceError("NextQueueNotAName", words)
    # The result's own word for it does not count: a job was completed where it was.
    fields.pop(keys.COMPLETED_QUEUE, None)
    return JobResult(keys.pairs({**fields, keys.COMPLETED_QUEUE: queue.name}), next_queue or queue.next_queue)


def failure_of(error: str, cause: str, queue: RedisQueue) -> list[str]:
    """Return the fields of a failed job, encoded in turn: of a cause its message, without the traceback."""
    message = cause.partition(_TRACEBACK)[0] or error
    if error == DeadlineExceededError.task_error and message == deadline_cause(queue.lock_seconds):
        message = f"Execution timeout of {queue.lock_seconds} seconds exceeded"
    elif error == InvalidTaskInputError.__name__:
        message = "an attribute of the job is not JSON"
    return keys.pairs(keys.failure(queue.name, message))


def too_large(words: str, queue: RedisQueue) -> list[str]:
    """Return the fields of a job whose attributes are more than a worker reads, encoded in turn."""
    return keys.pairs(keys.failure(queue.name, f"the job's attributes are too large for a worker: {words}"))


def deadline_cause(seconds: float) -> str:
    """Return what the runtime says of a handler that was over its deadline."""
    return f"the handler ran longer than {seconds:g} s"


def _kind(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names[type(value)]
