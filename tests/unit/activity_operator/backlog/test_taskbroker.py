"""Counts of taskbrokers: what is asked, what an answer or an error means, and sums over several brokers."""

from collections.abc import Sequence
from typing import Any

import pytest

from activity_operator.backlog import taskbroker
from activity_operator.backlog.poll_rounds import ReadCount, SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.backlog.taskbroker import TaskbrokerReader, hosts, item, problem, url_of
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerError

NOW = 1_000_000.0
MAIL = item("shop", "mail")


class Brokers:
    """Brokers by address: an answer as (pending, processing, age in ms) for each selection, or an error's code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, Sequence[tuple[int, int, int]] | str] = {}
        self.asked: list[tuple[str, Any]] = []
        self.open: list[str] = []
        monkeypatch.setattr(taskbroker, "TaskbrokerChannel", self._channel)
        monkeypatch.setattr("time.time", lambda: NOW)

    def _channel(self, settings: ChannelSettings, *, max_answer_bytes: int) -> "Channel":
        assert max_answer_bytes == taskbroker.ANSWER_BYTES
        self.open.append(settings.address)
        return Channel(self, settings.address)


class Channel:
    """A channel to one of the brokers."""

    def __init__(self, brokers: Brokers, address: str) -> None:
        self._brokers = brokers
        self._address = address

    async def call(self, path: str, request: Any, answer: Any, *, seconds: float) -> Any:
        self._brokers.asked.append((path, request))
        found = self._brokers.answers[self._address]
        if isinstance(found, str):
            raise TaskbrokerError(found, "")
        response = answer()
        for pending, processing, age in found:
            response.counts.add(pending=pending, processing=processing, oldest_pending_age_ms=age)
        return response

    async def close(self) -> None:
        self._brokers.open.remove(self._address)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


def endpoint(*addresses: str, token: str = "") -> SourceEndpoint:
    return SourceEndpoint(url_of(addresses, tls=False), 0.5, token)


async def test_one_call_counts_for_all_pools_of_a_broker(brokers: Brokers) -> None:
    brokers.answers["b:1"] = [(3, 2, 5000), (7, 0, 0)]
    reader = TaskbrokerReader()
    found = await reader.read(endpoint("b:1"), [item(None, None), MAIL, item(None, None)])

    ((path, request),) = brokers.asked
    assert path == "/activitypool.taskbroker.v1.BacklogService/CountTasks"
    first, second = request.selections
    assert (first.application, first.namespace) == ("shop", "mail")
    assert not second.HasField("application")
    assert not second.HasField("namespace")
    assert found == [ReadCount(7, 0, NOW), ReadCount(3, 2, NOW - 5), ReadCount(7, 0, NOW)]
    await reader.close(endpoint("b:1"))
    assert brokers.open == []


async def test_count_is_the_sum_over_the_brokers_and_the_oldest_task(brokers: Brokers) -> None:
    brokers.answers |= {"a:1": [(3, 2, 5000)], "b:1": [(1, 1, 9000)], "c:1": [(0, 0, 0)]}
    found = await TaskbrokerReader().read(endpoint("a:1", "b:1", "c:1"), [MAIL])
    assert found == [ReadCount(4, 3, NOW - 9)]


async def test_broker_that_stays_silent_is_left_out_and_named(brokers: Brokers) -> None:
    brokers.answers |= {"a:1": [(3, 0, 0)], "b:1": [(4, 0, 0)]}
    reader, both = TaskbrokerReader(), endpoint("a:1", "b:1")
    assert await reader.read(both, [MAIL]) == [ReadCount(7, 0, NOW)]
    brokers.answers["b:1"] = "UNAVAILABLE"
    # A lost call or two are normal operation: the last count stands in.
    assert [await reader.read(both, [MAIL]) for _ in range(2)] == [[ReadCount(7, 0, NOW)]] * 2
    (found,) = await reader.read(both, [MAIL])

    assert isinstance(found, ReadCount)
    assert found.tasks == 3
    assert found.missing is not None
    assert found.missing.reason == "BackendUnreachable"
    assert "the taskbroker at b:1" in found.missing.message
    brokers.answers["b:1"] = [(5, 0, 0)]
    assert await reader.read(both, [MAIL]) == [ReadCount(8, 0, NOW)]


async def test_refusal_by_one_broker_shows_at_once(brokers: Brokers) -> None:
    brokers.answers |= {"a:1": [(3, 0, 0)], "b:1": [(4, 0, 0)]}
    reader, both = TaskbrokerReader(), endpoint("a:1", "b:1")
    await reader.read(both, [MAIL])
    brokers.answers["b:1"] = "UNAUTHENTICATED"
    (found,) = await reader.read(both, [MAIL])
    assert isinstance(found, ReadCount)
    assert found.missing is not None
    assert found.missing.reason == "AccessDenied"


async def test_no_broker_that_answers_is_a_problem_of_all_pools(brokers: Brokers) -> None:
    brokers.answers |= {"a:1": "UNAVAILABLE", "b:1": "UNAVAILABLE"}
    with pytest.raises(SourceProblemError, match="BackendUnreachable: no answer from the taskbroker at a:1"):
        await TaskbrokerReader().read(endpoint("a:1", "b:1"), [MAIL])


async def test_call_that_times_out_is_repeated_on_a_new_connection(brokers: Brokers) -> None:
    brokers.answers["a:1"] = "DEADLINE_EXCEEDED"
    reader = TaskbrokerReader()
    with pytest.raises(SourceProblemError):
        await reader.read(endpoint("a:1"), [MAIL])
    assert brokers.open == []
    brokers.answers["a:1"] = [(1, 0, 0)]
    assert await reader.read(endpoint("a:1"), [MAIL]) == [ReadCount(1, 0, NOW)]


async def test_answer_for_other_selections_is_refused(brokers: Brokers) -> None:
    brokers.answers["a:1"] = [(1, 0, 0), (2, 0, 0)]
    with pytest.raises(SourceProblemError, match=r"QueryFailed: .* it answered 2 counts for 1 selections"):
        await TaskbrokerReader().read(endpoint("a:1"), [MAIL])


async def test_absurd_numbers_are_bounded(brokers: Brokers) -> None:
    brokers.answers["a:1"] = [(2**64 - 1, 2**64 - 1, 2**64 - 1)]
    found = await TaskbrokerReader().read(endpoint("a:1"), [MAIL])
    assert found == [ReadCount(taskbroker.MOST_TASKS, taskbroker.MOST_TASKS, NOW - taskbroker.MOST_SECONDS)]


async def test_secret_that_is_no_list_of_secrets_is_named(brokers: Brokers) -> None:
    with pytest.raises(SourceProblemError, match=r"SecretUnusable: .*signingSecretRef") as caught:
        await TaskbrokerReader().read(endpoint("a:1", token="hunter"), [MAIL])
    assert "hunter" not in caught.value.message


@pytest.mark.parametrize(
    "address", ["unix:/run/docker.sock", "dns:///b:1", "b", "b:", "b:1/x", "b:1@c:2", "", "ipv4:10.0.0.1:1", "b :1"]
)
def test_address_that_grpc_would_read_in_another_way_is_refused(address: str) -> None:
    with pytest.raises(SourceProblemError, match="is not HOST:PORT"):
        hosts(url_of([address], tls=False))


def test_addresses_are_hosts_for_the_policy() -> None:
    assert hosts(url_of(["b.ns.svc:50051", "[::1]:5", "10.0.0.1:1"], tls=True)) == [
        "10.0.0.1:1",
        "[::1]:5",
        "b.ns.svc:50051",
    ]


SSL = "last error: UNKNOWN: ipv4:10.0.0.1:5: Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: "


@pytest.mark.parametrize(
    ("code", "details", "secrets", "reason", "words"),
    [
        ("UNAUTHENTICATED", "", (), "AccessDenied", "it wants signed calls: set spec.source.taskbroker.signingSecret"),
        ("UNAUTHENTICATED", "", ("new",), "AccessDenied", "its secret is none of the broker's: correct what"),
        ("UNIMPLEMENTED", "", (), "QueryFailed", "set activation.mode None, and scaling.prometheus"),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max", (), "QueryFailed", "more than 1048576 byt"),
        ("UNAVAILABLE", SSL + "CERTIFICATE_VERIFY_FAILED", (), "TlsFailed", "signed by another authority"),
        ("UNAVAILABLE", SSL + "WRONG_VERSION_NUMBER", (), "TlsFailed", "it speaks no TLS"),
        ("UNAVAILABLE", "Hostname Verification Check failed.", (), "TlsFailed", "is for another name"),
        ("UNAVAILABLE", "Failed to create security handshaker.", (), "TlsFailed", "is no certificate in PEM"),
        ("UNAVAILABLE", "Connection refused", (), "BackendUnreachable", "no answer from the taskbroker at b:1"),
        ("INTERNAL", "the answer is not of the protocol", (), "QueryFailed", "correct its address"),
    ],
)
def test_error_has_a_reason_and_names_the_fix(
    code: str, details: str, secrets: tuple[str, ...], reason: str, words: str
) -> None:
    found = problem(TaskbrokerError(code, details), ChannelSettings("b:1", secrets))
    assert found.reason == reason
    assert words in found.message
    assert "10.0.0.1" not in found.message
