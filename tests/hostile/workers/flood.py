"""A process that floods, beside the test's own: `python -m tests.hostile.workers.flood`, its orders as JSON on stdin.

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
class Orders:
    """What to send: `requests` in turn, each thread starting with another one, for `seconds`."""

    port: int
    name: str
    authority: str
    sources: list[str]
    threads: int
    seconds: float
    requests: list[bytes]

    def to_json(self) -> bytes:
        """Return the orders as JSON."""
        texts = [base64.b64encode(each).decode() for each in self.requests]
        return json.dumps(vars(self) | {"requests": texts}).encode()

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """Return the orders from JSON."""
        raw = json.loads(text)
        return cls(**raw | {"requests": [base64.b64decode(each) for each in raw["requests"]]})


def _send(orders: Orders, number: int, address: ReportAddress, ends: float, answers: "Counter[int]") -> None:
    turn = number
    line: TlsConnection | None = None
    while time.monotonic() < ends:
        with suppress(OSError):
            line = line or address.connect(orders.sources[turn % len(orders.sources)])
            turn += 1
            line.send(orders.requests[turn % len(orders.requests)])
            answer = line.answer()
            answers[answer.status] += 1
            if not answer.status or answer.headers.get("connection") == "close":
                line.close()
                line = None


def main() -> None:
    """Read the orders and flood."""
    orders = Orders.from_json(sys.stdin.read())
    address = ReportAddress(orders.port, orders.name, ssl.create_default_context(cadata=orders.authority))
    ends = time.monotonic() + orders.seconds
    answers: Counter[int] = Counter()
    threads = [
        threading.Thread(target=_send, args=(orders, number, address, ends, answers), daemon=True)
        for number in range(orders.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(orders.seconds + 5.0)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
