"""PURE: the Redis keys of a flow's queues, and the JSON in which a job's hash holds its values.

A flow's jobs pass through queues: lists of job ids, one of those that wait and one of those that are worked on. A job
is a hash of its flow; a lock, a key with a time to live, says whose a job under way is.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

#: How long a worker owns a job by default, and how much longer than its handler's deadline its lock lives, in seconds.
LOCK_SECONDS: Final = 180
EXTRA_LOCK_SECONDS: Final = 1
#: How long a worker waits for a job before it asks again, in seconds.
BLOCK_SECONDS: Final = 3.0
#: How long a job and its look-up lists are kept after the job was made, in seconds.
KEEP_SECONDS: Final = 86_400

#: Fields that workers write into a job.
COMPLETED_QUEUE: Final = "completed-queue"
DONE: Final = "done"
FAILED: Final = "failed"
FAILED_QUEUE: Final = "failedQueue"
FAILED_ERROR: Final = "failedErrorMsg"
#: A key of a result that says where the job goes next; it is not saved.
NEXT_QUEUE: Final = "nextQueue"


def waiting(queue: str) -> str:
    """Return the list of the ids of jobs that wait: new ones to the right, the next one to the left."""
    return f"queue:{queue}:waiting"


def processing(queue: str) -> str:
    """Return the list of the ids of jobs under way."""
    return f"queue:{queue}:processing"


def lock(queue: str, job_id: str) -> str:
    """Return the key that holds the id of the worker that a job under way belongs to."""
    return f"lock:{queue}:{job_id}"


def recovery_turn(queue: str) -> str:
    """Return the key that names the worker that looks for the jobs of dead workers; our own, not the dialect's."""
    return f"queue:{queue}:recovery:turn"


def recovery_state(queue: str) -> str:
    """Return the key that holds the jobs that the last look found without a lock; our own, not the dialect's."""
    return f"queue:{queue}:recovery:state"


def job(flow: str, job_id: str) -> str:
    """Return the hash of a job."""
    return f"job:{flow}:{job_id}"


def lookup(flow: str, attribute: str, value: object) -> str:
    """Return the list of the ids of a flow's jobs whose attribute has a value."""
    return f"job:{flow}:{attribute}:{value}"


def child_name(parent: str, child: str) -> str:
    """Return the name of a child queue, which is also the flow of the jobs in it."""
    return f"{parent}:{child}"


def children_params(parent: str) -> str:
    """Return the field of a job that says which children a parent queue makes of it."""
    return f"children:{parent}:params"


def children_jobs(parent: str) -> str:
    """Return the field of a job that holds the keys of its children."""
    return f"children:{parent}:jobs"


def retries(queue: str) -> str:
    """Return the field of a job that counts how often it was put back into a queue."""
    return f"retries:{queue}"


def failure(queue: str, message: str) -> dict[str, Any]:
    """Return the fields of a job that failed in a queue."""
    return {DONE: True, FAILED: True, FAILED_QUEUE: queue, FAILED_ERROR: message}


def lock_exceeded(queue: str) -> dict[str, Any]:
    """Return the fields of a job whose lock ran out. `done` is JSON's true, so that a parent goes on."""
    return failure(queue, f"{queue} lock time exceeded")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
#: Halves of surrogate pairs, which JSON may name and UTF-8 cannot hold.
_HALVES = re.compile("[\ud800-\udfff]")
_decode = json.JSONDecoder(parse_constant=_refuse).decode


def encode(value: Any) -> str:
    """Return a value as the hash of a job holds it; raises `TypeError` or `ValueError` for what is not JSON."""
    text = _encode(value)
    if not text.isascii() and _HALVES.search(text):
        return _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    return text


def decode(stored: bytes | str | None) -> Any:
    """Return the value of a field; one that is absent is None. Raises `ValueError` for what is not JSON."""
    if stored is None:
        return None
    return _decode(stored if isinstance(stored, str) else stored.decode())


def pairs(fields: Mapping[str, Any]) -> list[str]:
    """Return fields and their encoded values in turn, as HSET takes them; raises as `encode` does."""
    return [text for name, value in fields.items() for text in (name, encode(value))]
