"""Counts the backlogs of sources that can report them: finds each pool's URL, checks it, and starts its reader.

A reader's module is imported when the first pool needs it, so an unused kind of source costs no memory.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from activity_operator.api.conditions import Reason
from activity_operator.api.sources import SecretKeyRef, SourceKind
from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.call_metrics import CallObserver
from activity_operator.backlog.poll_rounds import BacklogPoller, BacklogReader, Item, SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.cluster.resources import Key
from activity_operator.cluster.secret_values import SecretRef, SecretValue, SecretValues
from activity_operator.core import messages
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import BacklogCount, SourceProblem
from activity_operator.core.tenancy import TenancyPolicy

#: Sources with a URL or an address; the others are reached through AWS.
_WITH_URL = frozenset({"redis", "taskStore", "taskbroker"})
_PROMETHEUS = "prometheus"
_TASKBROKER = "taskbroker"
#: The other uses of a Secret's value, besides the token for Prometheus: the source's URL, or the secrets that sign its
#: calls; and the certificate of its authority.
_SOURCE = "source"
_CA = "sourceCa"
#: Seconds between two counts of a server's Redis queues.
REDIS_SECONDS = 0.1
#: The poller of the running jobs of Redis queues in the dialect, and the seconds between its counts. It only keeps a
#: worker for the jobs of dead workers, which wait for their locks to run out in any case.
_RUNNING_JOBS = "runningJobs"
RUNNING_SECONDS = 5.0


class CountedSources:
    """Counts of Redis queues, task stores, taskbrokers and Prometheus queries.

    `called(backend, ...)` is called after each call.

    `redis_seconds` is the interval between two counts of a Redis server's queues.
    """

    def __init__(
        self,
        secrets: SecretValues,
        policy: Callable[[], TenancyPolicy],
        *,
        on_change: Callable[[Key], None],
        called: Callable[..., None],
        now: Callable[[], float] = time.time,
        redis_seconds: float = REDIS_SECONDS,
    ) -> None:
        self._secrets = secrets
        self._policy = policy
        self._on_change = on_change
        self._called = called
        self._now = now
        self._redis_seconds = redis_seconds
        self._pollers: dict[str, BacklogPoller] = {}
        self._readers: dict[str, BacklogReader] = {}
        #: Why a pool's source is not read, by use; and the place of the pool's URL, for messages.
        self._problems: dict[Key, dict[str, SourceProblem]] = {}
        self._where: dict[Key, str] = {}
        #: Pools whose running tasks are counted, too.
        self._with_running: set[Key] = set()

    def order(self, key: Key, order: SentinelOrder, spec: PoolSpec) -> None:
        """Count for the pool exactly what its order requests. Cheap if nothing changed."""
        counted = spec.source_kind in _WITH_URL and order.counts
        if counted:
            self._where[key] = messages.url_location(spec)
        if counts_running(spec):
            self._with_running.add(key)
        else:
            self._with_running.discard(key)
        self._count_source(key, spec, counted=counted)
        self._count_watcher(key, spec, watched=order.watched)

    def latest(self, key: Key) -> tuple[tuple[BacklogCount, ...], SourceProblem | None]:
        """Return the counts of the pool, and why a count is missing."""
        counts: list[BacklogCount] = []
        errors = list(self._problems.get(key, {}).values())
        for kind, poller in self._pollers.items():
            if kind == _RUNNING_JOBS:
                continue
            count, error = poller.latest(key)
            if count is not None:
                with_running = count.exact and key in self._with_running
                running = count.running + self._running(key)
                counts.append(replace(count, with_running=with_running, running=running))
            if error is not None:
                # The messages about the others name their addresses, which are in the spec.
                with_url = kind not in (_PROMETHEUS, _TASKBROKER)
                where = f"; its URL is {self._where.get(key, '')}" if with_url else ""
                errors.append(replace(error, message=error.message + where))
        return tuple(counts), errors[0] if errors else None

    def withdraw(self, key: Key) -> None:
        """Stop counting for the pool."""
        for poller in self._pollers.values():
            poller.order(key, None)
        for use in (_SOURCE, _CA, _PROMETHEUS):
            self._secrets.follow(key, use, None)
        self._problems.pop(key, None)
        self._where.pop(key, None)
        self._with_running.discard(key)

    def pause(self) -> None:
        """Stop counting for all pools, because this process is no longer the leader."""
        for poller in self._pollers.values():
            poller.pause()
        self._secrets.pause()
        self._problems.clear()
        self._where.clear()
        self._with_running.clear()

    async def stop(self) -> None:
        """Stop counting for all pools and close every connection."""
        self.pause()
        await asyncio.gather(*(poller.stop() for poller in self._pollers.values()))

    def _count_source(self, key: Key, spec: PoolSpec, *, counted: bool) -> None:
        kind = spec.source_kind
        for other in _WITH_URL:
            if other != kind and other in self._pollers:
                self._pollers[other].order(key, None)
        endpoint, reason, message = self._endpoint(key, spec) if counted else self._no_endpoint(key)
        self._note(key, _SOURCE, reason, message)
        if endpoint is not None and not reason:
            self._poller_of(kind).order(key, endpoint, item_of(spec))
            self._count_running(key, spec, endpoint)
            return
        if endpoint is not None:
            # A correction of the Secret would only be found by reading it again.
            self._secrets.source_failed(key, _SOURCE)
        for one in (kind, _RUNNING_JOBS):
            if one in self._pollers:
                self._pollers[one].order(key, None)

    def _no_endpoint(self, key: Key) -> tuple[None, str, str]:
        """Drop the Secrets of a pool whose source is not read."""
        for use in (_SOURCE, _CA):
            self._secret(key, use, None)
        return None, "", ""

    def _endpoint(self, key: Key, spec: PoolSpec) -> tuple[SourceEndpoint | None, str, str]:
        """Return where the pool's source is, None while a Secret is missing; and reason and message of a problem."""
        broker = spec.taskbroker
        secret = self._value(key, _SOURCE, spec.url_secret_ref if broker is None else broker.signing_secret_ref)
        ca = self._value(key, _CA, None if broker is None else broker.ca_secret_ref)
        if secret is None or ca is None:
            return None, "", ""
        if secret.reason or ca.reason:
            return None, secret.reason or ca.reason, secret.message or ca.message
        url = secret.value if spec.url_secret_ref is not None else _plain_url(spec)
        if not url:
            return None, "", ""
        hosts = self._policy().source_hosts(key[0])
        token = "" if broker is None else secret.value
        endpoint = SourceEndpoint(url, self._interval(spec.source_kind), token, source_hosts=hosts, ca=ca.value)
        return endpoint, *self._objection(key[0], spec, url)

    def _count_running(self, key: Key, spec: PoolSpec, endpoint: SourceEndpoint) -> None:
        """Count the running jobs of a queue whose count of waiting jobs leaves them out."""
        if spec.redis is not None and not counts_running(spec):
            seldom = replace(endpoint, interval_seconds=max(RUNNING_SECONDS, endpoint.interval_seconds))
            self._poller_of(_RUNNING_JOBS).order(key, seldom, running_item_of(spec.redis.queue))
        elif _RUNNING_JOBS in self._pollers:
            self._pollers[_RUNNING_JOBS].order(key, None)

    def _running(self, key: Key) -> int:
        """Return the pool's running jobs, 0 if they are unknown or part of the count of waiting jobs."""
        poller = self._pollers.get(_RUNNING_JOBS)
        count, error = (None, None) if poller is None else poller.latest(key)
        return 0 if count is None or error is not None else count.tasks

    def _objection(self, namespace: str, spec: PoolSpec, url: str) -> tuple[str, str]:
        """Return why a URL must not be used, as reason and message; two empty strings if it may be used."""
        try:
            hosts = hosts_of(spec.source_kind, url)
        except SourceProblemError as problem:
            reason = problem.reason if spec.url_secret_ref is not None else Reason.INVALID_SPEC
            return reason, f"{messages.url_location(spec)}: {problem.message}"
        refusal = self._policy().host_refusal(namespace, hosts)
        return (Reason.TENANCY_DENIED, refusal) if refusal else ("", "")

    def _count_watcher(self, key: Key, spec: PoolSpec, *, watched: bool) -> None:
        watcher = spec.scaling.prometheus if watched else None
        ref = None if watcher is None else watcher.token_secret_ref
        token = self._secret(key, _PROMETHEUS, ref)
        self._note(key, _PROMETHEUS, token.reason if token else "", token.message if token else "")
        if watcher is not None and (ref is None or (token is not None and token.value)):
            endpoint = SourceEndpoint(watcher.server_url, float(watcher.interval_seconds), token.value if token else "")
            self._poller_of(_PROMETHEUS).order(key, endpoint, watcher.query)
        elif _PROMETHEUS in self._pollers:
            self._pollers[_PROMETHEUS].order(key, None)

    def _value(self, key: Key, use: str, ref: SecretKeyRef | None) -> SecretValue | None:
        """Return the Secret's value, an empty one without a reference; None before the first read."""
        found = self._secret(key, use, ref)
        return SecretValue() if ref is None else found

    def _secret(self, key: Key, use: str, ref: SecretKeyRef | None) -> SecretValue | None:
        """Return the Secret's value; None without a reference, and before the first read."""
        return self._secrets.follow(key, use, None if ref is None else SecretRef(key[0], ref.name, ref.key))

    def _note(self, key: Key, use: str, reason: str, message: str) -> None:
        """Store why a pool's source is not read, with the time at which that began; queue the pool if it changed."""
        noted = self._problems.setdefault(key, {})
        before = noted.pop(use, None)
        if reason:
            noted[use] = SourceProblemError(reason, message).noted(before, self._now())
        if not noted:
            del self._problems[key]
        if noted.get(use) != before:
            self._on_change(key)

    def _poller_of(self, kind: str) -> BacklogPoller:
        """Return the poller of this kind of source; create it on the first call."""
        poller = self._pollers.get(kind)
        if poller is None:
            reader = self._reader_of("redis" if kind == _RUNNING_JOBS else kind)
            exact = kind != _PROMETHEUS
            changed = partial(self._changed, kind)
            poller = self._pollers[kind] = BacklogPoller(reader, exact=exact, on_change=changed, now=self._now)
        return poller

    def _reader_of(self, kind: str) -> BacklogReader:
        """Return the reader of this kind of server; create it on the first call. Pollers share its connections."""
        if kind not in self._readers:
            self._readers[kind] = make_reader(kind, partial(self._called, kind.lower()))
        return self._readers[kind]

    def _changed(self, kind: str, key: Key) -> None:
        """Pass on a changed count or error; after an error, doubt the Secret, which may have changed."""
        uses = (_PROMETHEUS,) if kind == _PROMETHEUS else (_SOURCE, _CA)
        if kind == _RUNNING_JOBS:
            # The count of waiting jobs judges the Secret.
            self._on_change(key)
            return
        works = self._pollers[kind].latest(key)[1] is None
        for use in uses:
            if works:
                self._secrets.source_works(key, use)
            else:
                self._secrets.source_failed(key, use)
        self._on_change(key)

    def _interval(self, kind: SourceKind) -> float:
        """Return the seconds between two counts of this kind of source."""
        if kind == "redis":
            return self._redis_seconds
        if kind == "taskbroker":
            from activity_operator.backlog import taskbroker  # noqa: PLC0415

            return taskbroker.INTERVAL_SECONDS
        from activity_operator.backlog import taskstore  # noqa: PLC0415

        return taskstore.INTERVAL_SECONDS


def make_reader(kind: str, observed: CallObserver) -> BacklogReader:
    """Return a reader for this kind of server."""
    reader: BacklogReader
    if kind == "redis":
        from activity_operator.backlog.redis import RedisReader  # noqa: PLC0415

        reader = RedisReader()
    elif kind == "taskStore":
        from activity_operator.backlog.taskstore import TaskStoreReader  # noqa: PLC0415

        reader = TaskStoreReader()
    elif kind == "taskbroker":
        from activity_operator.backlog.taskbroker import TaskbrokerReader  # noqa: PLC0415

        reader = TaskbrokerReader()
    else:
        from activity_operator.backlog.prometheus import PrometheusReader  # noqa: PLC0415

        reader = PrometheusReader()
    reader.observed = observed
    return reader


def counts_running(spec: PoolSpec) -> bool:
    """Return whether running jobs are counted as waiting jobs, less those that workers report.

    A worker puts back the jobs of a dead worker, so a pool with running jobs needs a worker. With `conclude: Atomic`
    all workers of the queue are the pool's. In the dialect other programs may have running jobs, which have a count of
    their own.
    """
    return spec.redis is not None and spec.redis.conclude == "Atomic"


def item_of(spec: PoolSpec) -> Item:
    """Return the item that is counted for the pool at its source."""
    if spec.redis is not None:
        from activity_operator.backlog import redis  # noqa: PLC0415

        return redis.item(spec.redis.queue, with_running=counts_running(spec))
    if spec.taskbroker is not None:
        from activity_operator.backlog import taskbroker  # noqa: PLC0415

        return taskbroker.item(spec.taskbroker.application, spec.taskbroker.namespace)
    from activity_operator.backlog import taskstore  # noqa: PLC0415

    return taskstore.item(spec.task_store.tasks if spec.task_store is not None else ())


def running_item_of(queue: str) -> Item:
    """Return the item for the running jobs of a Redis queue."""
    from activity_operator.backlog import redis  # noqa: PLC0415

    return redis.running_item(queue)


def _plain_url(spec: PoolSpec) -> str:
    """Return the URL that the spec itself gives, "" if it gives none."""
    if spec.redis is not None and spec.redis.address is not None:
        return f"redis://{spec.redis.address}"
    if spec.taskbroker is not None:
        from activity_operator.backlog import taskbroker  # noqa: PLC0415

        return taskbroker.url_of(spec.taskbroker.addresses, tls=spec.taskbroker.tls)
    return (spec.task_store.url or "") if spec.task_store is not None else ""


def hosts_of(kind: SourceKind, url: str) -> Sequence[str]:
    """Return HOST:PORT of every host in a source's URL, in lower case.

    The URL is parsed as its reader parses it: with another parser the policy might allow one host, and the reader might
    connect to another. Raises SourceProblemError if the operator cannot use the URL.
    """
    if kind == "redis":
        from activity_operator.backlog.redis import hosts  # noqa: PLC0415
    elif kind == "taskbroker":
        from activity_operator.backlog.taskbroker import hosts  # noqa: PLC0415
    else:
        from activity_operator.backlog.taskstore import hosts  # noqa: PLC0415

    return tuple(host.lower() for host in hosts(url))
