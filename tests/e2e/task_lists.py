"""A task list of Amazon SWF and a pool for it: the fake as a pod, and its account of every task as the judge."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.fake import PORT, fake_pod, serve, url
from tests.e2e.harness import CREDENTIALS, RESOURCES, SHORT, ClusterHarness
from tests.e2e.pool import BasePool
from tests.e2e.timeline import PATIENCE
from tests.readiness import is_ready

DOMAIN, REGION, SERVICE = "shop", "us-east-1", "swf"


@dataclass(frozen=True)
class TaskList:
    """A task list of the fake in the test's namespace."""

    harness: ClusterHarness
    namespace: str
    name: str

    @property
    def endpoint_url(self) -> str:
        """The URL of the service for pods."""
        return url(self.namespace, SERVICE)

    def schedule(self, count: int = 1, **task: Any) -> None:
        """Schedule activity tasks: `name`, `version` and `input` (JSON), and the time-outs of the fake's page."""
        if "input" in task:
            task["input"] = json.dumps(task["input"])
        self._post("tasks", {"domain": DOMAIN, "taskList": self.name, "count": count, **task})

    def inject(self, kind: str, operation: str) -> None:
        """Apply a fault to every call of an operation until `clear_faults`."""
        self._post("faults", {"operation": operation, "kind": kind, "times": None})

    def clear_faults(self) -> None:
        """End all faults."""
        self.harness.kubectl("delete", "--raw", self._page("faults"))

    def state(self) -> dict[str, Any]:
        """Return the fake's account: counts, faults that struck, and every task."""
        return dict(json.loads(self.harness.kubectl("get", "--raw", self._page("state"))))

    def tasks(self) -> list[dict[str, Any]]:
        """Return every task, oldest first."""
        return list(self.state()["tasks"])

    def _post(self, page: str, body: dict[str, Any]) -> None:
        self.harness.kubectl("create", "--raw", self._page(page), "-f", "-", stdin=json.dumps(body))

    def _page(self, page: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{SERVICE}:{PORT}/proxy/_fake/{page}"


def task_list(harness: ClusterHarness, namespace: str, name: str) -> TaskList:
    """Start the fake with the domain, wait until it answers, and return an empty list of it."""
    harness.apply(fake_pod(harness, namespace, SERVICE, service=SERVICE, flags=["--domain", DOMAIN]))
    serve(harness, namespace, SERVICE, SERVICE)
    harness.timeline(namespace).eventually("the fake is Ready", lambda moment: is_ready(moment.get("Pod", SERVICE)))
    return TaskList(harness, namespace, name)


@dataclass(eq=False)
class TaskListPool(BasePool):
    """A pool on a task list."""

    list: TaskList = field(kw_only=True)

    def apply_example(self, manifest: dict[str, Any], image: str) -> None:
        """Apply an example's manifest; only what depends on the cluster differs: image, endpoint, windows."""
        manifest["metadata"] |= {"name": self.name, "namespace": self.namespace}
        manifest["spec"]["aws"] |= {"endpointUrl": self.list.endpoint_url}
        container = {"name": "worker", "env": CREDENTIALS, "resources": RESOURCES}
        manifest["spec"] |= {
            "handlerImage": image,
            "scaling": SHORT,
            "podTemplate": {"spec": {"containers": [container]}},
        }
        self.apply_manifest(manifest)

    def schedule(self, count: int = 1, **task: Any) -> None:
        """Schedule tasks as `TaskList.schedule` does; moves the mark."""
        self.act()
        self.list.schedule(count, **task)

    def wait_closed(self, seconds: float = PATIENCE) -> None:
        """Wait until every task is closed; move the mark to that moment."""
        self.wait_source("every task is closed", self._all_closed, seconds)
        self.act()

    def task_story(self) -> str:
        """Return every task, one on each line."""
        return "\n".join(map(str, self.list.tasks()))

    def endings(self) -> Counter[str]:
        """Return how often each event closes a task."""
        return Counter(event for task in self.list.tasks() for event in task["closing_events"])

    def _all_closed(self) -> bool:
        return all(task["closing_events"] for task in self.list.tasks())
