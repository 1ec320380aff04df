"""A pool on a task list of Amazon SWF, deployed from the example's own files: to work and back, and its faults."""

import pytest
import yaml

from tests.cluster import catalogue, find_image, load_image
from tests.e2e.harness import ROOT, ClusterHarness
from tests.e2e.task_lists import TaskListPool, task_list

pytestmark = pytest.mark.timeout(1800)

EXAMPLE = ROOT / "examples" / "invoices"
ORDER = {"number": 7, "lines": [{"item": "teapot", "cents": 1950, "count": 2}]}
ADDRESS = {"street": "1 High Street", "city": "Kent"}


def invoices(harness: ClusterHarness, namespace: str, **source: bool) -> TaskListPool:
    """Deploy the example's pool on an empty list, and wait until its status shows it at zero.

    `source` adds to `spec.source.swf`.
    """
    image = find_image(catalogue.example("invoices"))
    load_image(image)
    manifest = yaml.safe_load((EXAMPLE / "pool.yaml").read_text(encoding="utf-8"))
    swf = manifest["spec"]["source"]["swf"]
    swf |= source
    pool = TaskListPool(harness, namespace, "invoices", list=task_list(harness, namespace, swf["taskList"]))
    pool.apply_example(manifest, image.tag)
    pool.wait_until("Ready", "True", "ScaledToZero")
    return pool


def test_task_list_goes_from_zero_to_workers_and_back(harness: ClusterHarness, namespace: str) -> None:
    pool = invoices(harness, namespace)
    pool.schedule(6, name="render-invoice", version="1", input=ORDER)
    pool.schedule(2, name="check-address", version="1", input=ADDRESS)
    pool.schedule(1, name="check-address", version="1", input={"street": "", "city": "Kent"})
    pool.wait_closed()
    zero = pool.wait_zero()

    assert pool.endings() == {"ActivityTaskCompleted": 8, "ActivityTaskFailed": 1}
    assert all(len(task["closing_events"]) == 1 for task in pool.list.tasks())
    assert 1 <= pool.peak() <= 9
    assert zero.status["backlog"] == 0
    pool.wait_empty()


def test_operator_polls_at_zero_and_hands_the_task_over(harness: ClusterHarness, namespace: str) -> None:
    pool = invoices(harness, namespace, pollAtZero=True)
    pool.schedule(1, name="check-address", version="1", input=ADDRESS)
    pool.wait_closed()
    pool.wait_empty()
    (task,) = pool.list.tasks()

    assert task["identity"].startswith("activitypool-operator/")
    assert task["closing_events"] == ["ActivityTaskCompleted"]
    assert pool.peak() == 1


def test_refused_and_throttled_counts_are_said_and_end_with_the_fault(harness: ClusterHarness, namespace: str) -> None:
    pool = invoices(harness, namespace)
    pool.act()
    pool.list.inject("deny", "CountPendingActivityTasks")
    assert "allow swf:CountPendingActivityTasks on the domain shop" in pool.wait_until("Ready", "False", "AccessDenied")
    pool.act()
    pool.list.clear_faults()
    pool.wait_until("Ready", "True", "ScaledToZero")
    pool.act()
    pool.list.inject("throttle", "CountPendingActivityTasks")
    assert "lower swfCountsPerSecond" in pool.wait_until("Ready", "False", "Throttled")
    assert not any(view.workers for view in pool.since(0))
    pool.act()
    pool.list.clear_faults()
    pool.wait_until("Ready", "True", "ScaledToZero")

    pool.schedule(1, name="check-address", version="1", input=ADDRESS)
    pool.wait_closed()
    pool.wait_empty()
    assert pool.endings() == {"ActivityTaskCompleted": 1}
