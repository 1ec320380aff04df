"""What one failed TokenReview writes: an operator with an API server in memory, all of whose pools are at rest."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time

from activity_operator.cluster.resources import EVENTS
from activity_operator.process import Process
from activity_operator.reports.authentication import ReviewUnavailableError
from activity_worker.contract import TOKEN_AUDIENCE
from tests.bench.active_pool import AnsweringApi


async def failed_review_writes(process: Process, api: AnsweringApi) -> tuple[int, int]:
    """Return the status writes and the Events that one failed TokenReview causes, with all pools at rest."""
    writes, events = api.status_writes, _events(api)
    with contextlib.suppress(ReviewUnavailableError):
        await process.components.reports.authenticator.identify(f"Bearer {_token()}")
    await settle(process, api)
    return api.status_writes - writes, _events(api) - events


async def settle(process: Process, api: AnsweringApi) -> None:
    """Reconcile every pool until a whole round writes no status; the budget of status writes takes its time."""
    writes = -1
    while api.status_writes != writes:
        writes = api.status_writes
        for key in process.store.known_keys():
            await process.reconciler.reconcile(key)
            await asyncio.sleep(0)


def _events(api: AnsweringApi) -> int:
    return sum(1 for resource, _ in api.objects if resource == EVENTS)


def _token() -> str:
    """Return what looks like a token of a pod; the API server in memory answers every review with an error."""
    claims = json.dumps({"aud": [TOKEN_AUDIENCE], "exp": time.time() + 600})
    return f"header.{base64.urlsafe_b64encode(claims.encode()).decode()}.signature"
