"""Redis jobs as tasks, and a handler's response as fields of a job."""

import json

import pytest

from activity_worker.errors import InvalidTokenError, SourceError
from activity_worker.sources.redis_job import JobLock, RedisQueue, deadline_cause, failure_of, input_of, result_of

QUEUE = RedisQueue("shop", "pack", next_queue="send", lock_seconds=30)


def test_token_encodes_its_lease_with_any_names() -> None:
    lease = JobLock('a:b "c"', "j\udc80", "w:1")

    assert JobLock.of(lease.token) == lease
    assert "j\\udc80" not in repr(lease)


@pytest.mark.parametrize("token", ["", "text", "[1]", "{}", "null"])
def test_token_of_another_source_is_invalid(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        JobLock.of(token)


def test_input_has_the_attributes_and_an_id_that_the_job_may_override() -> None:
    assert json.loads(input_of('j"1', ("a", "b"), ('[1,"é"]', None))) == {"id": 'j"1', "a": [1, "é"], "b": None}
    assert json.loads(input_of("j1", ("id",), ('"mine"',))) == {"id": "mine"}


@pytest.mark.parametrize(
    ("output", "fields", "next_queue"),
    [
        ("{}", {}, "send"),
        ("null", {}, "send"),
        ('{"a":1,"nextQueue":"x"}', {"a": "1"}, "x"),
        ('{"nextQueue":null}', {}, "send"),
        ('{"completed-queue":"mine","done":true}', {"done": "true"}, "send"),
    ],
)
def test_output_is_split_into_fields_and_the_next_queue(output: str, fields: dict[str, str], next_queue: str) -> None:
    result = result_of(output, QUEUE)

    assert dict(zip(result.pairs[::2], result.pairs[1::2], strict=True)) == fields | {"completed-queue": '"pack"'}
    assert result.next_queue == next_queue


@pytest.mark.parametrize("output", ["1", '"text"', "[]", "true", '{"nextQueue":{}}'])
def test_output_that_is_not_a_map_is_refused_without_showing_it(output: str) -> None:
    with pytest.raises(SourceError) as refused:
        result_of(output, QUEUE)

    assert "text" not in str(refused.value)


@pytest.mark.parametrize(
    ("error", "cause", "message"),
    [
        ("ValueError", "no boxes\n\nTraceback (most recent call last):\n  File x", "no boxes"),
        ("Empty", "", "Empty"),
        ("ActivityPool.DeadlineExceeded", deadline_cause(30.0), "Execution timeout of 30 seconds exceeded"),
        ("ActivityPool.DeadlineExceeded", deadline_cause(7.5), "the handler ran longer than 7.5 s"),
        ("InvalidTaskInputError", "Could not parse task input", "an attribute of the job is not JSON"),
    ],
)
def test_failure_message_is_the_message_of_the_handler(error: str, cause: str, message: str) -> None:
    pairs = failure_of(error, cause, QUEUE)

    assert dict(zip(pairs[::2], pairs[1::2], strict=True)) == {
        "done": "true",
        "failed": "true",
        "failedQueue": '"pack"',
        "failedErrorMsg": json.dumps(message),
    }
