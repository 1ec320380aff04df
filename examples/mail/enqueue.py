"""Enqueue mails at a taskbroker: `python enqueue.py HOST:PORT COUNT`, and one more with an address that is none."""

import asyncio
import os
import sys

from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState
from activity_worker.taskbroker.protocol.channel import ChannelSettings
from activity_worker.wire.taskbroker_signature import read_secrets


async def enqueue(address: str, count: int) -> int:
    """Enqueue `count` good mails and a bad one; return how many are new. A second call adds none."""
    keep = RetryState(max_attempts=3, on_attempts_exceeded=OnAttemptsExceeded.DEADLETTER)
    addresses = [f"customer-{number}@example.com" for number in range(count)] + ["nowhere"]
    tasks = [
        NewTask("mail", "send", kwargs={"order": number, "to": to}, id=f"mail-of-order-{number}", retry=keep)
        for number, to in enumerate(addresses)
    ]
    # The broker's own pod has its secrets in this variable.
    secrets = read_secrets(os.environ.get("ACTIVITY_BROKER_SECRETS", ""))
    async with TaskProducer(ChannelSettings(address, secrets)) as producer:
        return await producer.enqueue(tasks)


print(asyncio.run(enqueue(sys.argv[1], int(sys.argv[2]))), "new")  # noqa: T201 - a command's answer
