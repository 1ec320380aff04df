"""boto3 as people write an activity worker with it: a client, and a thread a slot. Runs in the peers' environment.

`python -P worker_peer_boto3.py URL ARN SLOTS`. Credentials and region come from the environment.
"""

import sys
import threading
from typing import Any

import boto3
from botocore.config import Config

READ_TIMEOUT_SECONDS = 70


def slot(client: Any, arn: str, name: str) -> None:
    """Poll and conclude until killed."""
    while True:
        task = client.get_activity_task(activityArn=arn, workerName=name)
        if task.get("taskToken"):
            client.send_task_success(taskToken=task["taskToken"], output="{}")


def main(url: str, arn: str, slots: int) -> None:
    """Run the slots, each in a thread, over one client."""
    config = Config(max_pool_connections=2 * slots, read_timeout=READ_TIMEOUT_SECONDS)
    client = boto3.client("stepfunctions", endpoint_url=url, config=config)
    for number in range(slots):
        threading.Thread(target=slot, args=(client, arn, f"boto3:{number}")).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
