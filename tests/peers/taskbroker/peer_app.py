"""Tasks of the published client, its worker, and what its producer writes. Runs in its own environment only.

python peer_app.py work HOST:PORT              its worker, until it is killed
python peer_app.py push HOST:PORT PORT         its worker that is pushed to on PORT, and reports to HOST:PORT
python peer_app.py enqueue LOG                 prints the messages of three tasks, in hexadecimal
python peer_app.py produce LOG SERVERS TOPIC   writes three tasks to a topic of Kafka
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from taskbroker_client.app import TaskbrokerApp  # type: ignore[import-not-found]
from taskbroker_client.retry import Retry  # type: ignore[import-not-found]


def _producer(topic: str) -> Any:
    from arroyo.backends.kafka import KafkaProducer  # type: ignore[import-not-found]

    return KafkaProducer({"bootstrap.servers": sys.argv[3]})


class _Router:
    """Routes every namespace to the topic of the command line."""

    def route_namespace(self, name: str) -> str:
        return sys.argv[4] if sys.argv[1] == "produce" else name


app = TaskbrokerApp("shop", _producer, router_class=_Router())
app.set_config({"rpc_secret": os.environ.get("PEER_SECRETS")})
app.set_modules(["peer_app"])
shop = app.create_namespace("shop", processing_deadline_duration=30)


@shop.register(name="note")  # type: ignore[untyped-decorator]
def note(path: str, *words: Any, **more: Any) -> None:
    with Path(path).open("a") as file:
        file.write(" ".join(map(repr, (*words, *sorted(more.items())))) + "\n")


@shop.register(name="fail", retry=Retry(times=2, on=(LookupError,)))  # type: ignore[untyped-decorator]
def fail(path: str) -> None:
    note(path, "fail")
    raise LookupError("again")


def _main() -> None:
    what, where, *more = sys.argv[1:]
    if what == "produce":
        made = [
            note.apply_async_with_future([where, 1], {}),
            note.apply_async_with_future([where, 2], {"urgent": True}),
            fail.apply_async_with_future([where], {}),
        ]
        for future in made:
            future.result(timeout=30)
        return
    if what == "enqueue":
        large = "x" * 4_000_000
        for task, args, kwargs in (
            (note, [where, b"\x00\xff", 7], {"urgent": True}),
            (note, [where, large], {}),
            (fail, [where], {}),
        ):
            print(task.create_activation(args, kwargs).SerializeToString().hex())
        return
    from taskbroker_client.worker.worker import PushTaskWorker, TaskWorker  # type: ignore[import-not-found]

    if what == "push":
        sys.exit(PushTaskWorker("peer_app:app", where, namespace="shop", grpc_port=int(more[0])).start())
    sys.exit(TaskWorker("peer_app:app", [where], namespace="shop").start())


if __name__ == "__main__":
    _main()
