"""A workflow for simpleflow's decider, in moto's environment, which has simpleflow. Our worker runs its activities.

The input is a number: it is doubled, and the result is doubled again. A second activity fails, and the workflow goes
on. Credentials, region and endpoint come from the environment.
"""

# The names are simpleflow's own; it is not in our environment.
from simpleflow import Workflow, activity, futures  # type: ignore[import-not-found]

_SECONDS = {
    "start_to_close_timeout": 300,
    "schedule_to_close_timeout": 600,
    "schedule_to_start_timeout": 300,
    "heartbeat_timeout": 60,
}


@activity.with_attributes(name="twice", version="1", task_list="charges", **_SECONDS)  # type: ignore[untyped-decorator]
def twice(number: int) -> int:
    """Run by our worker."""
    raise AssertionError("the decider runs no activity")


@activity.with_attributes(name="refuse", version="1", task_list="charges", **_SECONDS)  # type: ignore[untyped-decorator]
def refuse() -> None:
    """Run by our worker, which fails it."""
    raise AssertionError("the decider runs no activity")


class Order(Workflow):  # type: ignore[misc]
    """Two activities one after the other, and one that fails beside them."""

    name = "order"
    version = "1"
    task_list = "decisions"
    execution_timeout = 3600
    decision_tasks_timeout = 300

    def run(self, number: int) -> dict[str, object]:
        """Return the number four times, and whether the failure was seen."""
        refused = self.submit(refuse)
        doubled = self.submit(twice, self.submit(twice, number))
        futures.wait(doubled, refused)
        return {"four_times": doubled.result, "refused": refused.exception is not None}
