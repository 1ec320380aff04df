"""The state of a job, derived from its fields and the lists that hold it."""

import pytest

from activity_worker.flows.job import Failure, JobSnapshot, JobState, child_of, job_of

FAILED = {"done": True, "failed": True, "failedQueue": "b", "failedErrorMsg": "no stock"}


@pytest.mark.parametrize(
    ("sighting", "state", "queue"),
    [
        (JobSnapshot({"user": 1}, waiting=["a"]), JobState.WAITING, "a"),
        (JobSnapshot({"user": 1}, processing=["a"]), JobState.PROCESSING, "a"),
        (JobSnapshot({"completed-queue": "a"}, processing=["a"]), JobState.PROCESSING, "a"),
        (JobSnapshot({"completed-queue": "a"}, waiting=["b"]), JobState.WAITING, "b"),
        (JobSnapshot({"completed-queue": "b"}), JobState.COMPLETED, "b"),
        (JobSnapshot(FAILED), JobState.FAILED, "b"),
        (JobSnapshot(FAILED, processing=["b"]), JobState.FAILED, "b"),
        (JobSnapshot(FAILED, waiting=["b"]), JobState.WAITING, "b"),
        (JobSnapshot({"completed-queue": "a", **FAILED}), JobState.FAILED, "b"),
        (JobSnapshot({"user": 1}), JobState.ADRIFT, None),
        (JobSnapshot({}), JobState.MISSING, None),
        (JobSnapshot({}, waiting=["a"]), JobState.WAITING, "a"),
    ],
)
def test_state_and_queue_are_derived_from_lists_and_fields(
    sighting: JobSnapshot, state: JobState, queue: str | None
) -> None:
    job = job_of("shop", "1", sighting)

    assert (job.state, job.queue) == (state, queue)
    assert job.finished == (state not in {JobState.WAITING, JobState.PROCESSING})


def test_failure_without_a_queue_is_recognized() -> None:
    """The original package's monitor writes such failures."""
    fields = {"done": "true", "failed": "true", "failedErrorMsg": "a lock time exceeded"}

    job = job_of("shop", "1", JobSnapshot(fields))

    assert (job.state, job.failure, job.done) == (JobState.FAILED, Failure("a lock time exceeded"), True)


@pytest.mark.parametrize("value", [False, None, "no", 1, "True"])
def test_only_true_marks_a_failure(value: object) -> None:
    assert job_of("shop", "1", JobSnapshot({"failed": value, "completed-queue": "a"})).state is JobState.COMPLETED


def test_data_are_the_fields_that_queues_did_not_write() -> None:
    job = job_of("shop", "1", JobSnapshot({"user": 1, "sum": 2, "completed-queue": "a", **FAILED}))

    assert job.data == {"user": 1, "sum": 2}
    assert job.completed_queue == "a"


def test_children_of_all_parent_queues_are_listed() -> None:
    fields = {"children:a:jobs": ["job:a:c:1"], "children:b:d:jobs": ["job:b:d:e:2"], "children:a:params": [{}]}

    assert job_of("shop", "1", JobSnapshot(fields)).child_keys() == ["job:a:c:1", "job:b:d:e:2"]
    assert child_of("job:b:d:e:2") == ("b:d:e", "2")
    with pytest.raises(ValueError, match="not the key of a job"):
        child_of("queue:2")
