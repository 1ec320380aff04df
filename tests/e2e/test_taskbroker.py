"""The mail example: a pool on a taskbroker that the chart runs, from zero to work and back."""

import asyncio
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.cluster import catalogue, find_image, load_image
from tests.cluster.shell import run
from tests.e2e.harness import RESOURCES, ROOT, SHORT, ClusterHarness
from tests.e2e.secret_pool import SecretPool
from tests.e2e.timeline import PATIENCE
from tests.readiness import is_ready
from tests.servers.postgres import execute, postgres_server

pytestmark = pytest.mark.timeout(1800)

EXAMPLE = ROOT / "examples" / "mail"
BROKER, PORT = "activity-taskbroker", 50051
SECRET = "taskbroker"
#: Every pod must use its password; the test on this machine need not.
LOGINS = "host all all 0.0.0.0/0 scram-sha-256"


@dataclass(eq=False)
class MailPool(SecretPool):
    """The example's pool, with a broker of its own in the test's namespace."""

    def run_broker(self, url: str) -> None:
        """Apply what the chart renders for a broker on this store, and wait until it is Ready."""
        worker = find_image(catalogue.worker())
        load_image(worker)
        values = {
            "enabled": True,
            "image": {"repository": "activity-worker", "tag": "dev"},
            "storeUrlSecretRef": {"name": SECRET, "key": "store"},
            "signingSecretRef": self.reference(),
            "resources": RESOURCES,
        }
        metadata = {"name": SECRET, "namespace": self.namespace}
        data = {"store": url, self.reference()["key"]: json.dumps([secrets.token_urlsafe(12)])}
        self.harness.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
        for document in self._rendered(values):
            self.harness.apply(document)
        self.timeline.eventually(
            "the broker is Ready", lambda moment: any(map(is_ready, brokers(moment.of_kind("Pod"))))
        )

    def apply_example(self, image: str, delivery: str) -> None:
        """Apply the example's manifest; only what depends on the cluster differs: image, address, secrets, windows.

        `delivery` is how tasks reach the workers: Pull or Push.
        """
        manifest = yaml.safe_load((EXAMPLE / "pool.yaml").read_text(encoding="utf-8"))
        manifest["metadata"]["namespace"] = self.namespace
        container = {"name": "worker", "resources": RESOURCES}
        manifest["spec"] |= {
            "handlerImage": image,
            "scaling": SHORT,
            "podTemplate": {"spec": {"containers": [container]}},
        }
        broker = manifest["spec"]["source"]["taskbroker"]
        broker["addresses"] = [one.replace("activitypool-system", self.namespace) for one in broker["addresses"]]
        broker["signingSecretRef"] = self.reference()
        broker["delivery"] = delivery
        self.apply_manifest(manifest)

    def enqueue(self, count: int) -> str:
        """Run the example's producer in the broker's pod, as its README says; moves the mark."""
        self.act()
        script = (EXAMPLE / "enqueue.py").read_text(encoding="utf-8")
        where = ("exec", "--stdin", "--namespace", self.namespace, f"deployment/{BROKER}", "--")
        python = ("/opt/activitypool/bin/python3", "-", f"127.0.0.1:{PORT}", str(count))
        return self.harness.kubectl(*where, *python, stdin=script)

    def reports(self) -> dict[str, float]:
        """Return how many reports changed a task, by outcome."""
        return self._counts('activity_broker_reports_total{changed="yes",outcome=')

    def pushes(self) -> dict[str, float]:
        """Return how many tasks were pushed, by outcome."""
        return self._counts("activity_broker_pushes_total{outcome=")

    def wait_reported_mails(self, mails: int, seconds: float = PATIENCE) -> None:
        """Wait until so many mails are sent or have failed for good; move the mark to that moment."""
        self.wait_source("every mail is reported", lambda: sum(self.reports().values()) >= mails, seconds)
        self.act()

    def task_story(self) -> str:
        """Return the broker's reports."""
        return str(self.reports())

    def _counts(self, series: str) -> dict[str, float]:
        page = self.harness.kubectl("get", "--raw", self._metrics_page())
        found = re.findall(rf'^{re.escape(series)}"(\w+)"}} (\S+)$', page, re.MULTILINE)
        return {outcome: float(number) for outcome, number in found}

    def _metrics_page(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{BROKER}-metrics:8080/proxy/metrics"

    def _rendered(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        text = run(
            [
                self.harness.cluster.helm, "template", "broker", str(ROOT / "charts" / "activity-operator"),
                "--namespace", self.namespace, "--show-only", "templates/taskbroker.yaml",
                "--set", "image.repository=activity-operator", f"--set-json=taskbroker={json.dumps(values)}",
            ],
            timeout_seconds=60,
        )  # fmt: skip
        return [document for document in yaml.safe_load_all(text) if document]


def brokers(pods: Any) -> list[dict[str, Any]]:
    """Return the pods of brokers."""
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == BROKER]


@contextmanager
def a_mail_pool(harness: ClusterHarness, namespace: str, delivery: str = "Pull") -> Iterator[MailPool]:
    """Yield the example's pool, at zero, with a broker on a PostgreSQL of this machine."""
    image = find_image(catalogue.example("mail"))
    load_image(image)
    password = secrets.token_urlsafe(12)
    with postgres_server(durable=False, logins=LOGINS, also=harness.cluster.host_ip) as server:
        asyncio.run(execute(server.url, f"CREATE USER broker PASSWORD '{password}'"))
        asyncio.run(execute(server.url, "CREATE DATABASE mail OWNER broker"))
        pool = MailPool(harness, namespace, "mail", secret=SECRET)
        pool.run_broker(server.url_of("broker", password=password, database="mail", host=harness.cluster.host_ip))
        pool.apply_example(image.tag, delivery)
        forbidden = pool.wait_until("Ready", "False", "SecretForbidden")
        assert f"may not read Secret {SECRET} in namespace {namespace}" in forbidden
        pool.let_operator_read()
        pool.wait_until("Ready", "True", "ScaledToZero")
        yield pool


def test_mails_start_an_empty_pool_which_goes_back_to_zero(harness: ClusterHarness, namespace: str) -> None:
    with a_mail_pool(harness, namespace) as pool:
        assert pool.enqueue(12) == "13 new\n"
        pool.eventually("shows its oldest task", lambda view: "oldestWaitingSince" in view.status)
        pool.wait_reported_mails(13)
        zero = pool.wait_zero()

        # The mail to nowhere fails for good at its first attempt.
        assert pool.reports() == {"complete": 12.0, "failure": 1.0}
        # A task that a worker takes between two looks counts as waiting and as running for a moment, so the size may
        # reach maxWorkers.
        assert pool.peak() >= 1
        assert zero.status["backlog"] == 0
        assert "oldestWaitingSince" not in zero.status
        where = ("exec", "--namespace", namespace, f"deployment/{BROKER}", "--")
        listed = harness.kubectl(*where, "activity-worker", "dead-letters", "list", "--json")
        (letter,) = json.loads(listed)["deadLetters"]
        assert letter["id"] == "mail-of-order-12"


def test_mails_are_pushed_to_workers_that_register_themselves(harness: ClusterHarness, namespace: str) -> None:
    with a_mail_pool(harness, namespace, "Push") as pool:
        assert pool.enqueue(12) == "13 new\n"
        pool.wait_reported_mails(13)
        pool.wait_zero()

        assert pool.reports() == {"complete": 12.0, "failure": 1.0}
        assert pool.pushes()["accepted"] == 13.0
