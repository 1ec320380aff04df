"""LLEN of all queues of a server in one exchange, and a server's errors as reasons and messages of conditions."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from activity_operator.backlog.poll_rounds import SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.backlog.redis import RedisReader, hosts, item, running_item, usable
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError, RedisErrorKind, address_refused, refusal, unreachable
from activity_worker.wire.redis_limits import RedisLimits
from activity_worker.wire.redis_url import RedisUrl

URL = "redis://operator:hunter2@shop-redis:6380/3"
PLACE = SourceEndpoint(URL, 0.1)
PEM = "-----BEGIN CERTIFICATE-----%0AMIIB%2BAAA%0A-----END CERTIFICATE-----%0A"


class FakeClient:
    """Answers from `lengths`, where an error is a refused command; `fails` is the error of a failed connection."""

    def __init__(self, url: RedisUrl) -> None:
        self.url = url
        self.lengths: dict[str, int | RedisError] = {}
        self.fails: RedisError | None = None
        self.exchanges: list[int] = []
        self.closed = False

    async def read_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.exchanges.append(len(commands))
        assert {command[0] for command in commands} == {"LLEN"}
        if self.fails is not None:
            raise self.fails
        return [self.lengths.get(str(key), 0) for _, key in commands]

    async def close(self) -> None:
        self.closed = True


class RecordedCounter:
    """The counter under test, the clients that it opened, and the calls that it observed."""

    def __init__(self) -> None:
        self.clients: list[FakeClient] = []
        self.calls: list[tuple[str, int, str]] = []
        self.queues = RedisReader(self._connect)
        self.queues.observed = lambda operation, code, outcome, seconds: self.calls.append((operation, code, outcome))

    def _connect(self, url: RedisUrl, limits: RedisLimits) -> RedisClient:
        self.limits = limits
        self.clients.append(FakeClient(url))
        return cast("RedisClient", self.clients[-1])

    async def problem(self, error: RedisError, url: str = URL) -> tuple[str, str]:
        """Return reason and message of the condition for this error."""
        endpoint = SourceEndpoint(url, 0.1)
        await self.queues.read(endpoint, [item("a")])
        self.clients[-1].fails = error
        with pytest.raises(SourceProblemError) as raised:
            await self.queues.read(endpoint, [item("a")])
        return raised.value.reason, raised.value.message


@pytest.fixture
def recorded() -> RecordedCounter:
    return RecordedCounter()


async def test_500_queues_take_one_exchange_on_one_connection(recorded: RecordedCounter) -> None:
    items = [item(f"q{number}") for number in range(500)]
    await recorded.queues.read(PLACE, items)
    recorded.clients[0].lengths["queue:q7:waiting"] = 4
    counts = await recorded.queues.read(PLACE, items)

    assert (counts[7], sum(cast("Sequence[int]", counts))) == (4, 4)
    assert [client.exchanges for client in recorded.clients] == [[500, 500]]
    assert recorded.calls == [("LLEN", 200, "ok")] * 2


async def test_jobs_in_progress_are_counted_in_the_same_exchange(recorded: RecordedCounter) -> None:
    items = [item("a"), item("b", with_running=True), item("c")]
    await recorded.queues.read(PLACE, items)
    recorded.clients[0].lengths = {f"queue:{name}:waiting": number for number, name in enumerate("abc", 1)}
    recorded.clients[0].lengths["queue:b:processing"] = 40

    assert await recorded.queues.read(PLACE, items) == [1, 42, 3]
    assert recorded.clients[0].exchanges == [4, 4]


async def test_leave_closes_the_connection_and_a_later_read_opens_another(recorded: RecordedCounter) -> None:
    await recorded.queues.read(PLACE, [item("a")])
    await recorded.queues.close(PLACE)
    await recorded.queues.close(PLACE)
    await recorded.queues.read(PLACE, [item("a")])

    assert [client.closed for client in recorded.clients] == [True, False]


async def test_endpoints_of_one_server_share_its_connection(recorded: RecordedCounter) -> None:
    seldom = SourceEndpoint(URL, 5.0)
    await recorded.queues.read(PLACE, [item("a")])
    await recorded.queues.read(seldom, [running_item("a")])
    await recorded.queues.close(PLACE)
    assert [client.closed for client in recorded.clients] == [False]

    await recorded.queues.close(seldom)
    assert [client.closed for client in recorded.clients] == [True]


async def test_refused_key_is_an_error_of_its_queue_only(recorded: RecordedCounter) -> None:
    await recorded.queues.read(PLACE, [item("a")])
    recorded.clients[0].lengths = {
        "queue:odd:waiting": refusal("WRONGTYPE Operation against a key holding the wrong kind of value"),
        "queue:foreign:waiting": refusal("NOPERM this user has no permissions to access one of the keys"),
        "queue:a:waiting": 3,
    }
    odd, foreign, count = await recorded.queues.read(PLACE, [item("odd"), item("foreign"), item("a")])

    assert count == 3
    assert isinstance(odd, SourceProblemError)
    assert isinstance(foreign, SourceProblemError)
    assert (odd.reason, foreign.reason) == ("QueryFailed", "AccessDenied")
    assert "the list queue:odd:waiting on the Redis server redis://shop-redis:6380/3 cannot be counted" in odd.message
    assert "correct the queue's name" in odd.message
    assert "LLEN on queue:foreign:waiting: correct user, password or ACL" in foreign.message


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (refusal("WRONGPASS invalid username-password pair"), "AccessDenied", "correct user, password or ACL"),
        (refusal("NOAUTH Authentication required."), "AccessDenied", "give one in the URL"),
        (unreachable("ConnectionRefused", "nothing listens there"), "BackendUnreachable", "check its address"),
        (RedisError("TlsFailed", "not trusted", RedisErrorKind.TLS), "TlsFailed", "the CA in the URL"),
        (refusal("ERR DB index is out of range"), "SecretUnusable", "correct the URL"),
        (refusal("ERR unknown command"), "QueryFailed", "correct the URL"),
        (refusal("LOADING Redis is loading the dataset in memory"), "BackendUnreachable", "still loads"),
    ],
    ids=["wrong password", "no password", "down", "tls", "no such database", "no LLEN", "loading"],
)
async def test_every_error_names_server_and_fix_but_not_the_password(
    recorded: RecordedCounter, error: RedisError, reason: str, words: str
) -> None:
    found, message = await recorded.problem(error)

    assert found == reason
    assert "redis://shop-redis:6380/3" in message
    assert words in message
    assert "hunter2" not in message


async def test_outcome_of_a_failed_round_is_observed(recorded: RecordedCounter) -> None:
    await recorded.problem(unreachable("AnswerTimeout", "the server did not answer in time"))

    assert recorded.calls[-1] == ("LLEN", 0, "unreachable")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://shop-redis", "scheme 'http'"),
        ("hunter2", "scheme '?'"),
        ("redis://:p#ss@shop-redis", "percent-encode"),
        ("rediss://:hunter2@shop-redis?ssl_ca_certs=/etc/ca.crt", "give the CA as ssl_ca_data"),
        ("rediss://:hunter2@shop-redis?ssl_certfile=/c&ssl_keyfile=/k", "give the CA as ssl_ca_data"),
        ("rediss://:hunter2@shop-redis?ssl_ca_data=hunter2", "percent-encoded"),
        ("rediss://:hunter2@shop-redis?ssl_ca_data=" + PEM.replace("%2B", "+"), "+ as %2B"),
    ],
)
def test_unusable_url_is_an_error_before_any_connection(url: str, words: str) -> None:
    with pytest.raises(SourceProblemError) as raised:
        usable(url)

    assert raised.value.reason == "SecretUnusable"
    assert words in raised.value.message
    assert "hunter2" not in raised.value.message


def test_ca_in_the_url_is_decoded_and_hidden_in_repr() -> None:
    url = usable(f"rediss://shop-redis?ssl_ca_data={PEM}")

    assert url.tls is not None
    assert url.tls.ca_data == "-----BEGIN CERTIFICATE-----\nMIIB+AAA\n-----END CERTIFICATE-----\n"
    assert "MIIB" not in repr(url)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("redis://Shop-Redis", ("Shop-Redis:6379",)),
        ("redis://a:b@[::1]:7", ("[::1]:7",)),
        ("redis+sentinel://s1,s2:5/shop/0", ("s1:26379", "s2:5")),
        ("rediss+cluster://n1:1,n2:2", ("n1:1", "n2:2")),
    ],
)
def test_all_hosts_of_a_url_are_listed_with_their_ports(url: str, named: tuple[str, ...]) -> None:
    assert hosts(url) == named


async def test_server_may_lead_only_to_hosts_that_the_policy_allows(recorded: RecordedCounter) -> None:
    await recorded.queues.read(SourceEndpoint(URL, 0.1, source_hosts=("redis-*:6379",)), [item("a")])

    assert recorded.limits.answer_bytes == 1024 * 1024
    assert recorded.limits.address("Redis-2", 6379, "MOVED") == ("Redis-2", 6379)
    with pytest.raises(RedisError, match="MOVED leads to evil:6379: the tenancy policy's sourceHosts do not allow"):
        recorded.limits.address("evil", 6379, "MOVED")


async def test_refused_host_is_the_policys_reason(recorded: RecordedCounter) -> None:
    reason, message = await recorded.problem(address_refused("evil:1", "MOVED", "sourceHosts do not allow it"))

    assert reason == "TenancyDenied"
    assert "redis://shop-redis:6380/3: AddressRefused: MOVED leads to evil:1: sourceHosts do not allow it" in message


@pytest.mark.parametrize("length", ["7", None, [], -1])
async def test_length_that_is_none_is_an_error_of_the_queue(recorded: RecordedCounter, length: Any) -> None:
    await recorded.queues.read(PLACE, [item("a")])
    recorded.clients[0].lengths = {"queue:a:waiting": length}
    (found,) = await recorded.queues.read(PLACE, [item("a")])

    assert isinstance(found, SourceProblemError)
    assert "does not answer LLEN with a length: correct the URL" in found.message
