"""`python -m tests.demo`: from nothing to a pool that goes 0 -> 10 -> 0, and back to nothing. `KEEP=1` keeps it all.

`--record PATH` writes the panel of a run that kept every promise as an animated SVG.
"""

import argparse
import asyncio
import dataclasses
import os
import signal
import sys
import uuid
from pathlib import Path

from tests.cluster import ClusterError, current, probe
from tests.cluster.progress import say, step
from tests.cluster.shell import wait_until
from tests.demo import plan, screen
from tests.demo.leaving import Found, clean_up, dump, look_around, ways
from tests.demo.play import Run
from tests.demo.recording import Recorder
from tests.demo.verdict import Outcome, failures, last_line
from tests.e2e.executions import Executions
from tests.e2e.harness import SYSTEM, ClusterHarness, client, set_up

#: Seconds an operator that was rolled has for its open polls; until it has left, no process polls for a pool at zero.
ROLLED_SECONDS = 110.0
INTERRUPTED = 130


class Demo:
    """One run of the demo, and what it has made so far."""

    def __init__(self, handler_image: str, record: Path | None) -> None:
        self._handler_image = handler_image
        self._record = record
        self._namespace = f"demo-{uuid.uuid4().hex[:6]}"
        self._executions: Executions | None = None

    def run(self) -> int:
        """Play it and clean up whatever happens; returns the exit code. The last line printed is the verdict."""
        print(plan.introduction(), flush=True)
        found = look_around()
        code, verdict = 1, "demo: failed"
        try:
            outcome = self._play()
            verdict = last_line(outcome)
            wrong = failures(outcome)
            code = 1 if wrong else 0
            if wrong:
                self._explain(wrong)
        except KeyboardInterrupt:
            code, verdict = INTERRUPTED, "demo: interrupted"
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine is left clean
            self._explain([_told(error)])
        if not self._leave(found):
            code = code or 1
        print(verdict, flush=True)
        return code

    def _play(self) -> Outcome:
        harness = set_up()
        harness = dataclasses.replace(harness, states=client(harness.emulator, connect_timeout=3, read_timeout=10))
        _wait_for_rolled(harness)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        meta = {"name": self._namespace, "labels": labels}
        probe.apply(harness.cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        self._executions = harness.machine(self._namespace, **plan.TASK)
        image = {"handlerImage": self._handler_image} if self._handler_image else {}
        harness.apply_pool(self._namespace, plan.POOL, self._executions.activity, **plan.spec(), **image)
        say(f"applied ActivityPool {plan.POOL} in namespace {self._namespace}")
        with screen.opened() as shown:
            recorder = Recorder(shown)
            run = Run(self._executions, recorder)
            outcome = asyncio.run(run.play(harness.cluster.kubeconfig, self._namespace))
        if self._record is not None and not failures(outcome):
            recorder.write(self._record)
        return outcome

    def _explain(self, wrong: list[str]) -> None:
        cluster = current()
        if cluster is not None:
            for part in dump(cluster, self._namespace):
                print(part)
        print("\ndemo: FAILED\n" + "\n".join(f"  {sentence}" for sentence in wrong) + "\n", flush=True)

    def _leave(self, found: Found) -> bool:
        """Clean up, or say how to; whether that went well. Not to be interrupted: it ends by itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        cluster = current()
        if os.environ.get("KEEP") and cluster is not None:
            print(ways(cluster, found, self._namespace, self._executions), flush=True)
            return True
        say("cleaning up; Ctrl-C does not shorten it")
        try:
            clean_up(found, self._namespace, self._executions)
        except ClusterError as error:
            print(f"demo: the clean-up failed: {error}", flush=True)
            return False
        return True


def _told(error: Exception) -> str:
    """Say an error; of a group, its first."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _wait_for_rolled(harness: ClusterHarness) -> None:
    """Wait until an operator that this run's replaced has left, so that the time to the first replica is this one's."""

    def leaving() -> bool:
        times = "--output=jsonpath={.items[*].metadata.deletionTimestamp}"
        return bool(harness.kubectl("get", "pods", "-n", SYSTEM, times).strip())

    if leaving():
        with step("the operator of before awaits its open polls"):
            wait_until(lambda: not leaving(), "it has left", timeout_seconds=ROLLED_SECONDS, every_seconds=1.0)


def main() -> int:
    """Run the demo; 0 when everything was as promised, 1 when not, 130 when it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    text = "another image with the worker runtime; its handler is given a number of seconds"
    parser.add_argument("--handler-image", default="", help=text)
    text = "write the panel of this run as an animated SVG to this file, if the run keeps every promise"
    parser.add_argument("--record", type=Path, metavar="PATH", help=text)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return Demo(chosen.handler_image, chosen.record).run()


if __name__ == "__main__":
    sys.exit(main())
