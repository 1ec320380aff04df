"""Dramatiq, arq and Celery on the same work, in an environment of their own: `NAME load|work URL COUNT SLOTS`.

Each is one process with SLOTS threads, or SLOTS tasks at once, and its own defaults otherwise.
"""

import asyncio
import sys
from typing import Any


def dramatiq_broker(url: str) -> Any:
    """Return the actor."""
    import dramatiq  # type: ignore[import-not-found, unused-ignore]
    from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found, unused-ignore]

    dramatiq.set_broker(RedisBroker(url=url))

    @dramatiq.actor(max_retries=0)  # type: ignore[untyped-decorator, unused-ignore]
    def noop(number: int) -> None:
        pass

    return noop


def run_dramatiq(mode: str, url: str, count: int, slots: int) -> None:
    """Send the jobs, or work on them in threads of this process."""
    import threading

    import dramatiq  # type: ignore[import-not-found, unused-ignore]

    actor = dramatiq_broker(url)
    if mode == "load":
        for number in range(count):
            actor.send(number)
        return
    worker = dramatiq.Worker(dramatiq.get_broker(), worker_threads=slots)
    worker.start()
    threading.Event().wait()


async def noop(_: Any, number: int) -> None:
    """The handler for arq."""


def run_arq(mode: str, url: str, count: int, slots: int) -> None:
    """Enqueue the jobs, or work on them."""
    from arq.connections import RedisSettings, create_pool  # type: ignore[import-not-found, unused-ignore]
    from arq.worker import Worker  # type: ignore[import-not-found, unused-ignore]

    settings = RedisSettings.from_dsn(url)

    async def load() -> None:
        pool = await create_pool(settings)
        for first in range(0, count, 50):
            await asyncio.gather(*(pool.enqueue_job("noop", number) for number in range(first, first + 50)))

    if mode == "load":
        asyncio.run(load())
        return
    asyncio.set_event_loop(asyncio.new_event_loop())
    Worker([noop], redis_settings=settings, max_jobs=slots, keep_result=0, poll_delay=0.01).run()


def run_celery(mode: str, url: str, count: int, slots: int) -> None:
    """Send the jobs, or work on them in threads of this process."""
    from celery import Celery  # type: ignore[import-not-found, unused-ignore]

    app = Celery("bench", broker=url)
    app.conf.task_ignore_result = True

    @app.task(name="noop", acks_late=True)  # type: ignore[untyped-decorator, unused-ignore]
    def task(number: int) -> None:
        pass

    if mode == "load":
        for number in range(count):
            task.delay(number)
        return
    app.worker_main(["worker", "-P", "threads", "-c", str(slots), "--loglevel=ERROR", "--without-gossip"])


RUNS = {"dramatiq": run_dramatiq, "arq": run_arq, "celery": run_celery}


if __name__ == "__main__":
    name, mode, url, count, slots = sys.argv[1:]
    RUNS[name](mode, url, int(count), int(slots))
