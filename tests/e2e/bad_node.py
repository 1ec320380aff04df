"""A bad node on a cluster of one: at most one pod is on it at a time, and no worker starts there.

The scheduler puts a failed pod's successor on the same node, as the emptiest one. Here a server on this machine answers
each pod whether it is on that node, and the handler's module raises there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from tests.e2e.faults import GATED
from tests.e2e.harness import RESOURCES, ClusterHarness

HANDLER = """
import socket, urllib.request

with urllib.request.urlopen("http://{address}/" + socket.gethostname(), timeout=60) as answer:
    if answer.read() == b"bad":
        raise RuntimeError("this node has no GPU")

def handle(request):
    return {{"task": request.input["n"]}}
"""


class BadNode:
    """Says which pod is on the node: the second that asks, and after its end the next new one. The first starts."""

    def __init__(self, pods: Callable[[], set[str]]) -> None:
        self._pods = pods
        self._lock = Lock()
        self._elsewhere: set[str] = set()
        #: Every pod that was on the node.
        self.had: list[str] = []

    def has(self, pod: str) -> bool:
        """Whether a pod, which starts now, is on the node. `pods` are those that exist and are not being deleted."""
        with self._lock:
            if pod not in self._elsewhere and pod not in self.had:
                if self._elsewhere and not self._pods() & set(self.had):
                    self.had.append(pod)
                else:
                    self._elsewhere.add(pod)
            return pod in self.had


@contextmanager
def bad_node(
    harness: ClusterHarness, namespace: str, pods: Callable[[], set[str]]
) -> Iterator[tuple[BadNode, dict[str, Any]]]:
    """Yield the node, and the podTemplate of a pool of which one pod at a time is on it."""
    node = BadNode(pods)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"bad" if node.has(self.path.removeprefix("/")) else b"good")

        def log_message(self, *_: Any) -> None:
            """Write nothing: the timeline has the pods."""

    server = ThreadingHTTPServer((harness.cluster.host_ip, 0), Answer)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        code = HANDLER.format(address=f"{harness.cluster.host_ip}:{server.server_port}")
        metadata = {"name": "gate", "namespace": namespace}
        harness.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gated.py": code}})
        worker = {"name": "worker", **GATED, "resources": RESOURCES}
        volumes = [{"name": "gated", "configMap": {"name": "gate"}}]
        yield node, {"spec": {"containers": [worker], "volumes": volumes}}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
