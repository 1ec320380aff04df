"""Dramatiq and Celery on Redis, in an environment of their own: `NAME load|send|work URL COUNT SLOTS LOG PAUSE`.

Each is one process with SLOTS threads, and its own defaults otherwise. `load` sends COUNT tasks at once, `send` one
each PAUSE seconds. With LOG the handler writes how long after its sending each task began.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOG = sys.argv[6] if len(sys.argv) > 6 else ""


def note(sent: float) -> None:
    """Write how long ago the task was sent."""
    if LOG:
        with Path(LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.time() - sent}\n")


def dramatiq(url: str, slots: int) -> tuple[Callable[[float], Any], Callable[[], Any]]:
    """Return how a task is sent, and how a worker runs."""
    import threading

    import dramatiq  # type: ignore[import-not-found, unused-ignore]
    from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found, unused-ignore]

    dramatiq.set_broker(RedisBroker(url=url))
    actor = dramatiq.actor(max_retries=0)(note)

    def work() -> None:
        dramatiq.Worker(dramatiq.get_broker(), worker_threads=slots).start()
        threading.Event().wait()

    return actor.send, work


def celery(url: str, slots: int) -> tuple[Callable[[float], Any], Callable[[], Any]]:
    """Return how a task is sent, and how a worker runs."""
    from celery import Celery  # type: ignore[import-not-found, unused-ignore]

    app = Celery("bench", broker=url)
    app.conf.task_ignore_result = True
    task = app.task(name="note", acks_late=True)(note)
    arguments = ["worker", "-P", "threads", "-c", str(slots), "--loglevel=ERROR", "--without-gossip"]
    return task.delay, lambda: app.worker_main(arguments)


def main() -> None:
    """Run the command line."""
    name, mode, url, count, slots = sys.argv[1:6]
    send, work = {"dramatiq": dramatiq, "celery": celery}[name](url, int(slots))
    if mode == "work":
        work()
        return
    for _ in range(int(count)):
        send(time.time())
        if mode == "send":
            time.sleep(float(sys.argv[7]))


if __name__ == "__main__":
    main()
