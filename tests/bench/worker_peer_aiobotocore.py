"""aiobotocore as people write an activity worker with it: a client, and a loop a slot. Runs in the peers' environment.

`python -P worker_peer_aiobotocore.py URL ARN SLOTS [uvloop]`. Credentials and region come from the environment.
"""

import asyncio
import sys

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

READ_TIMEOUT_SECONDS = 70


async def work(url: str, arn: str, slots: int) -> None:
    """Poll and conclude in `slots` loops over one client, until killed."""
    config = AioConfig(max_pool_connections=2 * slots, read_timeout=READ_TIMEOUT_SECONDS)
    async with get_session().create_client("stepfunctions", endpoint_url=url, config=config) as client:

        async def slot(name: str) -> None:
            while True:
                task = await client.get_activity_task(activityArn=arn, workerName=name)
                if task.get("taskToken"):
                    await client.send_task_success(taskToken=task["taskToken"], output="{}")

        await asyncio.gather(*(slot(f"aiobotocore:{number}") for number in range(slots)))


if __name__ == "__main__":
    if sys.argv[4:] == ["uvloop"]:
        import uvloop

        uvloop.install()
    asyncio.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3])))
