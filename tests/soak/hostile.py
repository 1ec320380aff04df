"""Hostile workers and users beside the load: reports that must be refused, and pools with hostile specs."""

import asyncio
import base64
import itertools
import json
import random
import ssl
from collections import Counter
from collections.abc import Callable

import aiohttp

from activity_operator.cluster.resources import POOLS
from activity_worker.contract import LABEL_POOL, MAX_REPORT_BYTES, TOKEN_AUDIENCE
from tests import manifests
from tests.faults.api import Raw, RefusedError
from tests.hostile.users.drawn import drawn
from tests.hostile.users.pools import specs
from tests.hostile.workers.wire import REPORT
from tests.soak.harness import SoakHarness

#: The number of generated pools, and how many of them each fault creates.
MADE_UP, AT_A_TIME = 120, 6
#: Connections at once, and seconds between two requests on each: as much as the processor can take beside the load.
SENDERS, PAUSE_SECONDS = 4, 0.05
ANSWER_SECONDS = 10.0
HERE = "hostile"


def unsigned(number: int) -> str:
    """Return a token for the operator with a false signature; each is different, so each causes a TokenReview."""
    claims = json.dumps({"aud": [TOKEN_AUDIENCE], "exp": 9_999_999_999, "sub": f"forged {number}"})
    return f"e30.{base64.urlsafe_b64encode(claims.encode()).rstrip(b'=').decode()}.c2ln"


def lies(pod: Raw, pool: str, namespace: str, number: int) -> bytes:
    """Return a report about another worker's pod."""
    content = {
        "protocol": 1, "namespace": namespace, "pool": pool, "podName": pod["name"], "podUid": pod["uid"],
        "incarnation": "forged", "sequence": 2**40 + number, "state": "drained", "slots": 1, "busy": 0,
        "released": [f"{number:032x}"], "events": [{"sequence": number, "name": "worker:stopped", "at": 1.0}],
    }  # fmt: skip
    return json.dumps(content).encode()


#: Other bodies: one over the size limit, JSON without an end, an empty one, and values that are no numbers.
ODD = (b"x" * (MAX_REPORT_BYTES + 1), b"[" * 50_000, b"", b"{}", b"null", b'{"sequence": NaN}', b"9" * 10_000)


class Hostile:
    """Sends what a harness's operators must refuse; a request that is not refused becomes an error of the run."""

    def __init__(self, harness: SoakHarness) -> None:
        self._harness = harness
        self._serial = itertools.count(1)
        self._pools = drawn(specs(), MADE_UP)
        #: The attacker's own pod: it has a real token and a label, but belongs to no pool.
        self._pod: Raw = {}
        self._token = ""

    async def report(self, port: int, seconds: float, luck: float) -> str:
        """Send reports to a replica's own port; return the number of answers by status, "" if there was none."""
        await self._set_up()
        answers: Counter[int] = Counter()
        async with asyncio.timeout(seconds + 2 * ANSWER_SECONDS), asyncio.TaskGroup() as group:
            for number in range(SENDERS):
                generator = random.Random(f"{luck} {number}")
                group.create_task(self._send(f"https://127.0.0.1:{port}{REPORT}", seconds, generator, answers))
        if answers[200]:
            self._harness.node.troubles.append(f"{answers[200]} hostile reports were taken")
        return ", ".join(f"{count} x {status}" for status, count in sorted(answers.items()))

    async def make_pools(self, seconds: float, luck: float) -> str:
        """Make some pools, delete them after `seconds`."""
        await self._set_up()
        harness, first = self._harness, int(luck * len(self._pools))
        chosen = [self._pools[(first + number) % len(self._pools)] for number in range(AT_A_TIME)]
        accepted = 0
        try:
            for spec in chosen:
                body = manifests.pool(f"made-up-{next(self._serial)}", spec)
                try:
                    accepted += await harness.api.call("POST", POOLS.path(HERE), body, expect=(400, 422)) is not None
                except RefusedError as error:
                    harness.node.troubles.append(f"a made-up pool was answered {error}")
            await asyncio.sleep(seconds)
        finally:
            await harness.api.call("DELETE", POOLS.path(HERE))
        return f"{accepted} of {len(chosen)} pools"

    async def _set_up(self) -> None:
        if self._token:
            return
        api = self._harness.api
        await api.make_namespace(HERE)
        meta = {"name": "stranger", "labels": {LABEL_POOL: "zero"}}
        spec = {"containers": [{"name": "any", "image": "any"}], "automountServiceAccountToken": False}
        made = await api.call("POST", f"/api/v1/namespaces/{HERE}/pods", {"metadata": meta, "spec": spec})
        assert made is not None
        self._pod = made["metadata"]
        self._token = await api.token(HERE, audiences=[TOKEN_AUDIENCE], bound=made)

    async def _send(self, url: str, seconds: float, generator: random.Random, answers: "Counter[int]") -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=anybody)) as session:
            while loop.time() < end:
                token, body = generator.choice(self._kinds())()
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                try:
                    async with session.post(url, data=body, headers=headers) as answer:
                        await answer.read()
                        answers[answer.status] += 1
                except (aiohttp.ClientError, OSError):  # the server closed the connection; TimeoutError is an OSError
                    answers[0] += 1
                await asyncio.sleep(PAUSE_SECONDS)

    def _kinds(self) -> tuple[Callable[[], tuple[str, bytes]], ...]:
        number, harness = next(self._serial), self._harness
        victims = sorted(harness.node.workers)
        uid = victims[number % len(victims)] if victims else "nobody"
        victim = {"name": harness.node.pod(uid) if victims else "nobody", "uid": uid}
        pool = str(victim["name"]).rpartition("-")[0].rpartition("-")[0].rpartition("-")[0]
        foreign = lies(victim, pool, harness.namespace, number)
        own = lies(self._pod, "zero", HERE, number)
        return (
            lambda: ("", foreign),
            lambda: (unsigned(number), foreign),
            lambda: (self._token, foreign),
            lambda: (self._token, own),
            lambda: (self._token, ODD[number % len(ODD)]),
        )
