"""Counted pools of one namespace beside real servers: Secrets are in memory, the rest is the operator's."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from activity_operator.api.spec import PoolSpec
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.resources import Key, Raw
from activity_operator.cluster.secret_values import SecretValues
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import BacklogCount, SourceProblem
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.counted_sources import CountedSources
from tests.eventually import eventually
from tests.servers.redis import RedisServer

#: The longest time that a short operation takes on a busy machine.
PATIENCE_SECONDS = 30.0


class Counted:
    """The operator's counts and errors; `seen` has all numbers of each pool, in order."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.seen: dict[str, list[int]] = {}
        self.errors: dict[str, list[SourceProblem]] = {}
        self._specs: dict[Key, PoolSpec] = {}
        self._orders: dict[Key, SentinelOrder] = {}
        self._changes: dict[Key, tuple[tuple[BacklogCount, ...], SourceProblem | None]] = {}
        values = SecretValues(self._get, on_change=self._look)
        self.policy = TenancyPolicy()
        self._signals = CountedSources(values, lambda: self.policy, on_change=self._look, called=lambda *_: None)

    async def _get(self, namespace: str, name: str) -> Raw:
        if name not in self.secrets:
            raise ApiError(404, "NotFound", "none")
        return {"data": {"url": base64.b64encode(self.secrets[name].encode()).decode()}}

    def _look(self, key: Key) -> None:
        asyncio.get_running_loop().call_soon(self._reconcile, key)

    def _reconcile(self, key: Key) -> None:
        signals, error = self._changes[key] = self._signals.latest(key)
        self.seen.setdefault(key[1], []).extend(count.tasks for count in signals)
        if error is not None:
            self.errors.setdefault(key[1], []).append(error)
        self._signals.order(key, self._orders[key], self._specs[key])

    def pool(self, queue: str, url: str | None = None, *, secret: str = "shop") -> None:
        """Count a queue at the URL of a Secret; the pool has the queue's name. With `url` the Secret is made first."""
        if url is not None:
            self.secrets[secret] = url
        raw = {"urlSecretRef": {"name": secret, "key": "url"}, "flow": "shop", "queue": queue}
        self.order(queue, {"source": {"redis": raw}})

    def order(self, name: str, source: dict[str, Any]) -> None:
        """Count the backlog of a pool with these fields in its spec."""
        spec = self._specs["team", name] = PoolSpec.model_validate({**source, "handlerImage": "h", "maxWorkers": 1})
        # As on the pool's first reconciliation, the sentinel order is set with the source.
        self._orders["team", name] = SentinelOrder(
            counts=spec.source_kind != "stepFunctions", watched=spec.scaling.prometheus is not None
        )
        self._reconcile(("team", name))

    def tasks(self, queue: str) -> int | None:
        """Return the number of waiting tasks at the last change."""
        signals, _ = self._changes.get(("team", queue), ((), None))
        return signals[0].tasks if signals else None

    def age(self, queue: str, now: float) -> float:
        """Return the seconds since that count."""
        signals, _ = self._signals.latest(("team", queue))
        return now - signals[0].observed_at

    def error(self, queue: str) -> SourceProblem | None:
        """Return the error of the last change, None if the count worked."""
        return self._changes.get(("team", queue), ((), None))[1]

    async def until(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds; a failure shows all counts and errors."""
        await eventually(what, holds, seconds=seconds, details=lambda: f"{self.seen}, {self.errors}")

    async def counts(self, queue: str, tasks: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until `tasks` tasks are counted, without an error."""

        def right() -> bool:
            return self.tasks(queue) == tasks and self.error(queue) is None

        await self.until(f"{tasks} tasks are counted in {queue}", right, seconds)

    async def fails(self, queue: str, seconds: float = PATIENCE_SECONDS) -> SourceProblem:
        """Wait until the count fails, and return the error."""
        await self.until(f"{queue} has an error", lambda: self.error(queue) is not None, seconds)
        error = self.error(queue)
        assert error is not None
        return error

    async def stop(self) -> None:
        """Stop counting."""
        await self._signals.stop()


def push(server: RedisServer, queue: str, jobs: int, *how: str) -> None:
    """Add jobs to a queue."""
    server.say(*how, "RPUSH", f"queue:{queue}:waiting", *(f"job-{number}" for number in range(jobs)))


def with_ca(server: RedisServer, **more: Any) -> str:
    """Return the URL of a TLS server that contains its CA, in a form for the operator."""
    assert server.tls_ca is not None
    plain = server.url.partition("?")[0]
    return f"{plain}?ssl_ca_data={quote(server.tls_ca.read_text())}" + "".join(f"&{k}={v}" for k, v in more.items())
