"""Reads backlogs from taskbrokers: one call per broker counts the tasks of all its pools.

A pool may name several brokers, each with a store of its own: its count is their sum. A broker that does not answer is
left out of the sum, which then says so.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_count
from activity_operator.backlog.messages import unreachable
from activity_operator.backlog.poll_rounds import TOLD_FAILURES, Item, ReadCount, ReadResult, SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import BACKLOG_SERVICE, CountTasksRequest, CountTasksResponse
from activity_worker.wire.taskbroker_signature import SecretsError, read_secrets

#: Seconds between two counts. A broker counts a small store anew for each call.
INTERVAL_SECONDS = 0.5
#: Time-out of a call in seconds; below that of a round, so that a silent broker does not hide the others' counts.
CALL_SECONDS = 3.0
#: The most bytes of a broker's answer: a count takes about 20.
ANSWER_BYTES = 1024 * 1024
#: Upper bound of a count: more tasks than any pool has slots, and within the API's integers.
MOST_TASKS = 1_000_000_000
#: Upper bound of an age in seconds: a broker's clock may be wrong by years.
MOST_SECONDS = 365 * 86_400.0
#: The schemes of an endpoint's URL, without and with TLS. The addresses follow, with commas.
PLAIN, WITH_TLS = "taskbroker://", "taskbrokers://"
#: A broker's counts, by item.
Counts = Mapping[Item, ReadCount]
_CALL = f"/{BACKLOG_SERVICE}/CountTasks"
_ADDRESS = re.compile(r"(?:[A-Za-z0-9](?:[-.A-Za-z0-9]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")
_TLS_WORDS = ("ssl", "handshake", "certificate", "hostname verification")
_TLS_MEANINGS = {
    "certificate_verify_failed": "its certificate is signed by another authority",
    "not in peer certificate": "its certificate is for another name",
    "hostname verification": "its certificate is for another name",
    "wrong_version_number": "it speaks no TLS",
    "create security handshaker": "what caSecretRef names is no certificate in PEM",
}


def item(application: str | None, namespace: str | None) -> Item:
    """Return the item for the tasks of an application and a task namespace; None is any."""
    return json.dumps([application, namespace])


def url_of(addresses: Sequence[str], *, tls: bool) -> str:
    """Return the URL of an endpoint for these brokers."""
    return (WITH_TLS if tls else PLAIN) + ",".join(sorted(set(addresses)))


def hosts(url: str) -> Sequence[str]:
    """Return HOST:PORT of every broker; raises SourceProblemError if one of them is something else.

    gRPC reads more than HOST:PORT as an address, such as a path to a socket.
    """
    addresses = url.partition("://")[2].split(",")
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise SourceProblemError("InvalidSpec", f"'{address}' is not HOST:PORT, such as taskbroker:50051")
    return addresses


@dataclass(slots=True)
class _Broker:
    """A broker's channel, its last counts, and how often in a row it could not be counted."""

    settings: ChannelSettings
    channel: TaskbrokerChannel | None = None
    counts: Counts = field(default_factory=dict)
    failures: int = 0

    def stand_in(self, items: Sequence[Item]) -> Counts | None:
        """Return the last counts of a broker that is silent for a moment, None if they are old or miss an item."""
        known = self.failures < TOLD_FAILURES and all(one in self.counts for one in items)
        return self.counts if known else None

    async def close(self) -> None:
        """Close the channel; the next call makes another one."""
        if (channel := self.channel) is not None:
            self.channel = None
            await channel.close()


class TaskbrokerReader:
    """Reads counts with the call CountTasks. `observed` is called after each call."""

    def __init__(self) -> None:
        self._brokers: dict[SourceEndpoint, tuple[_Broker, ...]] = {}
        self.observed: CallObserver = ignore_call

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[ReadResult]:
        """Return each item's sum over the brokers; raises SourceProblemError if none of them can be used."""
        brokers = self._brokers.get(endpoint)
        if brokers is None:
            brokers = self._brokers[endpoint] = _brokers(endpoint)
        different = sorted(set(items))
        answers = await asyncio.gather(*(self._ask(broker, different) for broker in brokers))
        problems = [answer for answer in answers if isinstance(answer, SourceProblemError)]
        if len(problems) == len(answers):
            raise problems[0]
        counted, missing = [], None
        for broker, answer in zip(brokers, answers, strict=True):
            counts = broker.stand_in(different) if isinstance(answer, SourceProblemError) else answer
            if counts is not None:
                counted.append(counts)
            elif isinstance(answer, SourceProblemError):
                missing = answer
        found = {one: _sum([counts[one] for counts in counted], missing) for one in different}
        return [found[one] for one in items]

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Wait; a broker announces nothing."""
        await asyncio.sleep(seconds)

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close the connections to the brokers."""
        await asyncio.gather(*(broker.close() for broker in self._brokers.pop(endpoint, ())))

    async def _ask(self, broker: _Broker, items: Sequence[Item]) -> Counts | SourceProblemError:
        try:
            with observe_count(self.observed, "CountTasks"):
                counts = await self._call(broker, items)
        except SourceProblemError as problem:
            broker.failures = broker.failures + 1 if problem.reason == "BackendUnreachable" else TOLD_FAILURES
            return problem
        broker.failures, broker.counts = 0, counts
        return counts

    async def _call(self, broker: _Broker, items: Sequence[Item]) -> Counts:
        request = CountTasksRequest()
        for one in items:
            application, namespace = json.loads(one)
            request.selections.add(application=application, namespace=namespace)
        if broker.channel is None:
            broker.channel = TaskbrokerChannel(broker.settings, max_answer_bytes=ANSWER_BYTES)
        # The operator's clock, because ages travel without one.
        now = time.time()
        try:
            answer = await broker.channel.call(_CALL, request, CountTasksResponse, seconds=CALL_SECONDS)
        except TaskbrokerError as error:
            if error.code == "DEADLINE_EXCEEDED":
                # The network may have forgotten the connection.
                await broker.close()
            raise problem(error, broker.settings) from error
        if len(answer.counts) != len(items):
            raise _failed(broker.settings, f"it answered {len(answer.counts)} counts for {len(items)} selections")
        return {one: _read(count, now) for one, count in zip(items, answer.counts, strict=True)}


def _brokers(endpoint: SourceEndpoint) -> tuple[_Broker, ...]:
    """Return the endpoint's brokers without connections; raises SourceProblemError for secrets that are none."""
    try:
        secrets = read_secrets(endpoint.token)
    except SecretsError as error:
        text = f"what spec.source.taskbroker.signingSecretRef names cannot be used: {error}"
        raise SourceProblemError("SecretUnusable", text) from None
    tls_root = endpoint.ca.encode() if endpoint.url.startswith(WITH_TLS) else None
    return tuple(_Broker(ChannelSettings(address, secrets, tls_root)) for address in hosts(endpoint.url))


def _sum(counts: Sequence[ReadCount], missing: SourceProblemError | None) -> ReadCount:
    oldest = min((one.oldest_since for one in counts if one.oldest_since is not None), default=None)
    tasks, running = sum(one.tasks for one in counts), sum(one.running for one in counts)
    return ReadCount(min(tasks, MOST_TASKS), min(running, MOST_TASKS), oldest, missing)


def _read(count: Any, now: float) -> ReadCount:
    """Return a count of an answer. `now` is Unix seconds: ages travel without a clock."""
    age = min(count.oldest_pending_age_ms / 1000, MOST_SECONDS)
    return ReadCount(count.pending, count.processing, now - age if count.pending else None)


def _failed(settings: ChannelSettings, words: str) -> SourceProblemError:
    text = f"the taskbroker at {settings.address} does not count for the operator"
    return SourceProblemError("QueryFailed", f"{text}: {words}")


def problem(error: TaskbrokerError, settings: ChannelSettings) -> SourceProblemError:
    """Return the source problem for a broker that cannot be used; equal failures have equal messages."""
    broker, words = f"the taskbroker at {settings.address}", str(error).lower()
    match error.code:
        case "UNAUTHENTICATED" | "PERMISSION_DENIED":
            fix = (
                "its secret is none of the broker's: correct what spec.source.taskbroker.signingSecretRef names"
                if settings.secrets
                else "it wants signed calls: set spec.source.taskbroker.signingSecretRef"
            )
            return SourceProblemError("AccessDenied", f"{broker} refuses the operator; {fix} ({error.code})")
        case "UNIMPLEMENTED":
            fix = "set activation.mode None, and scaling.prometheus with a query for its waiting tasks"
            return _failed(settings, f"it has no call for that, as the published taskbroker; {fix} ({error.code})")
        case "RESOURCE_EXHAUSTED" if "larger than" in words:
            return _failed(settings, f"its answer has more than {ANSWER_BYTES} bytes; correct the address")
        case "UNAVAILABLE" if any(word in words for word in _TLS_WORDS):
            text = "check its certificate, and spec.source.taskbroker.tls and caSecretRef"
            return SourceProblemError("TlsFailed", f"no TLS with {broker}: {text} ({_tls_words(words)})")
        case "UNAVAILABLE" | "DEADLINE_EXCEEDED" | "CANCELLED" | "ABORTED" | "RESOURCE_EXHAUSTED":
            return unreachable(broker, error.code)
    return _failed(settings, f"correct its address ({error.code})")


def _tls_words(words: str) -> str:
    """Return what was wrong, without the parts of the library's text that differ between two equal errors."""
    for sign, meaning in _TLS_MEANINGS.items():
        if sign in words:
            return meaning
    return "the handshake failed"
