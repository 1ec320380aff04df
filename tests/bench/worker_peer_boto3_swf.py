"""boto3 as people write an activity worker of Amazon SWF: a client, a thread a slot. Runs in the peers' environment.

`python -P worker_peer_boto3_swf.py URL DOMAIN TASK_LIST SLOTS`. Credentials and region come from the environment.
"""

import sys
import threading
from typing import Any

import boto3
from botocore.config import Config

READ_TIMEOUT_SECONDS = 75


def slot(client: Any, domain: str, task_list: str, name: str) -> None:
    """Poll and conclude until killed."""
    while True:
        task = client.poll_for_activity_task(domain=domain, taskList={"name": task_list}, identity=name)
        if task.get("taskToken"):
            client.respond_activity_task_completed(taskToken=task["taskToken"], result="{}")


def main(url: str, domain: str, task_list: str, slots: int) -> None:
    """Run the slots, each in a thread, over one client."""
    config = Config(max_pool_connections=2 * slots, read_timeout=READ_TIMEOUT_SECONDS)
    client = boto3.client("swf", endpoint_url=url, config=config)
    for number in range(slots):
        threading.Thread(target=slot, args=(client, domain, task_list, f"boto3:{number}")).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
