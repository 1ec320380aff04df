"""A worker in one process, as people write it with boto3: a heartbeat thread for each task, and handlers in threads.

`python -P worker_peer_heartbeats.py URL ARN SLOTS HANDLERS INTERVAL_SECONDS`. Runs in the peers' environment. The
handlers start when all tasks are leased, because they would delay the leases.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config

_POLLERS = 16
_CONNECTIONS = 64


def hold_the_interpreter() -> None:
    """Compute for ever in C calls that hold the interpreter, as our handler does."""
    while True:
        sum(range(20_000_000))


def beat(client: Any, token: str, interval_seconds: float) -> None:
    """Send a task's heartbeats for ever."""
    while True:
        time.sleep(interval_seconds)
        try:
            client.send_task_heartbeat(taskToken=token)
        except client.exceptions.TaskTimedOut:
            return


def main(url: str, arn: str, slots: int, handlers: int, interval_seconds: float) -> None:
    """Lease `slots` tasks, heartbeat each, and compute."""
    config = Config(max_pool_connections=_CONNECTIONS, read_timeout=70)
    client = boto3.client("stepfunctions", endpoint_url=url, config=config)

    def lease(_: int) -> None:
        token = client.get_activity_task(activityArn=arn, workerName="boto3")["taskToken"]
        threading.Thread(target=beat, args=(client, token, interval_seconds)).start()

    with ThreadPoolExecutor(_POLLERS) as pool:
        list(pool.map(lease, range(slots)))
    for _ in range(handlers):
        threading.Thread(target=hold_the_interpreter).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
