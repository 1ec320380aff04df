"""What a second Ctrl-C says of its cost."""

import pytest

from activity_worker.supervisor.interrupts import describe_cost


@pytest.mark.parametrize(
    ("tasks", "polls", "text"),
    [
        (0, 0, "nothing was running"),
        (1, 0, "no answer for 1 running task until HeartbeatSeconds or TimeoutSeconds"),
        (0, 1, "no answer for what 1 open poll brings until HeartbeatSeconds or TimeoutSeconds"),
        (2, 3, "no answer for 2 running tasks and what 3 open polls bring until HeartbeatSeconds or TimeoutSeconds"),
    ],
)
def test_end_at_once_names_what_is_left_without_an_answer(tasks: int, polls: int, text: str) -> None:
    assert describe_cost(tasks, polls) == text
