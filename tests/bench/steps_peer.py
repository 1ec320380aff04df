"""DBOS on the same work, in an environment of its own: `load URL N SLOTS` or `work URL N SLOTS`.

A workflow of five steps that do nothing, on a queue that runs SLOTS at a time in each process.
"""

import os
import sys
import threading

from dbos import (  # type: ignore[import-not-found, unused-ignore]
    DBOS,
    DBOSClient,
    run_dbos_database_migrations,
)

STEPS = 5
QUEUE = "bench"


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
def noop(number: int) -> int:
    """One step."""
    return number


@DBOS.workflow(name="five")  # type: ignore[untyped-decorator, unused-ignore]
def five(number: int) -> int:
    """The workflow: five steps."""
    for _ in range(STEPS):
        noop(number)
    return number


def main() -> None:
    """Run the command line; `work` prints a line when it is ready, starts at a line on stdin, and runs until killed."""
    mode, url, count, slots = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if mode == "load":
        run_dbos_database_migrations(system_database_url=url)
        client = DBOSClient(system_database_url=url)
        for number in range(count):
            client.enqueue({"queue_name": QUEUE, "workflow_name": "five"}, number)
        client.destroy()
        return
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "bench",
            "executor_id": str(os.getpid()),
        }
    )
    DBOS.launch()
    print("ready", flush=True)
    sys.stdin.readline()
    DBOS.register_queue(QUEUE, worker_concurrency=slots, polling_interval_sec=0.1, on_conflict="never_update")
    threading.Event().wait()


if __name__ == "__main__":
    main()
