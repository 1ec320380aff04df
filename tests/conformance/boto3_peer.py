"""boto3 against a fake: it calls in a thread, without retries."""

import asyncio
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

from activity_worker.testing import StepFunctionsFake, SwfFake


def client(service: str, url: str) -> Any:
    """Return boto3's client without retries."""
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=60),
    )


async def with_boto3(service: str, fake: StepFunctionsFake | SwfFake, story: Callable[[Any], None]) -> None:
    """Start the fake, and run a story with boto3 in a thread."""
    async with fake:
        peer = client(service, fake.url)
        try:
            await asyncio.to_thread(story, peer)
        finally:
            peer.close()
