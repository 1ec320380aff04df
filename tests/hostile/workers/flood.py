"""A process that floods, beside the test's own: `python -m tests.hostile.workers.flood`, its plan as JSON on stdin.

Each thread opens one connection after the other, from the sources in turn, and sends requests as fast as they are
answered. At the end the process prints the number of answers by status.
"""

import base64
import json
import ssl
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from tests.hostile.workers.wire import ReportAddress, TlsConnection


@dataclass(frozen=True)
class FloodPlan:
    """What to send: `requests` in turn, each thread starting with another one, for `seconds`."""

    port: int
    name: str
    authority: str
    sources: list[str]
    threads: int
    seconds: float
    requests: list[bytes]

    def to_json(self) -> bytes:
        """Return the plan as JSON."""
        texts = [base64.b64encode(each).decode() for each in self.requests]
        return json.dumps(vars(self) | {"requests": texts}).encode()

    @classmethod
    def from_json(cls, text: str) -> "FloodPlan":
        """Return the plan from JSON."""
        raw = json.loads(text)
        return cls(**raw | {"requests": [base64.b64decode(each) for each in raw["requests"]]})


def _send(plan: FloodPlan, number: int, address: ReportAddress, ends: float, answers: "Counter[int]") -> None:
    turn = number
    line: TlsConnection | None = None
    while time.monotonic() < ends:
        with suppress(OSError):
            line = line or address.connect(plan.sources[turn % len(plan.sources)])
            turn += 1
            line.send(plan.requests[turn % len(plan.requests)])
            answer = line.answer()
            answers[answer.status] += 1
            if not answer.status or answer.headers.get("connection") == "close":
                line.close()
                line = None


def main() -> None:
    """Read the plan and flood."""
    plan = FloodPlan.from_json(sys.stdin.read())
    address = ReportAddress(plan.port, plan.name, ssl.create_default_context(cadata=plan.authority))
    ends = time.monotonic() + plan.seconds
    answers: Counter[int] = Counter()
    threads = [
        threading.Thread(target=_send, args=(plan, number, address, ends, answers), daemon=True)
        for number in range(plan.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(plan.seconds + 5.0)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
