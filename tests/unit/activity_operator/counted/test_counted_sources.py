"""Counted signals: the URL from its Secret, the tenancy policy, and the reason for a missing count."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import pytest

from activity_operator import counted_sources
from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.poll_rounds import SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.resources import Key, Raw
from activity_operator.cluster.secret_values import SecretValues
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.tenancy import TenancyPolicy, TenancyRule
from activity_operator.counted_sources import CountedSources, hosts_of
from tests.unit.activity_operator.virtual_time import settle, wall

COUNT = SentinelOrder(counts=True)
NOTHING = SentinelOrder()
URL = "redis://:hunter2@shop-redis:6379"
STORE = "postgresql://tasks:hunter2@db/tasks"
RUNNING = ("queue:orders:processing",)
ONLY_SHOP = TenancyPolicy((TenancyRule(source_hosts=("shop-*:6379",)),))


def redis(queue: str = "orders", secret: str = "shop-redis", **more: Any) -> PoolSpec:
    """Return the spec of a pool on a Redis queue, whose URL is in a Secret unless an address is given."""
    where = {} if "address" in more else {"urlSecretRef": {"name": secret, "key": "url"}}
    source = {"redis": {"flow": "shop", "queue": queue, **where, **more}}
    return PoolSpec.model_validate({"source": source, "handlerImage": "h", "maxWorkers": 1})


def watched(**more: Any) -> PoolSpec:
    """Return the spec of a Redis pool with a Prometheus query in addition."""
    prometheus = {"serverUrl": "http://prom", "query": "q", **more}
    raw = {"source": {"redis": {"address": "r:1", "flow": "f", "queue": "q"}}, "handlerImage": "h", "maxWorkers": 1}
    return PoolSpec.model_validate({**raw, "scaling": {"prometheus": prometheus}})


class FakeCounter:
    """Returns 7 for every item; `fails` maps a URL to its error."""

    def __init__(self) -> None:
        self.fails: dict[str, SourceProblemError] = {}
        self.asked: list[tuple[SourceEndpoint, tuple[str, ...]]] = []

    async def read(self, endpoint: SourceEndpoint, items: Sequence[str]) -> Sequence[int | SourceProblemError]:
        self.asked.append((endpoint, tuple(items)))
        if endpoint.url in self.fails:
            raise self.fails[endpoint.url]
        return [7] * len(items)

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self, endpoint: SourceEndpoint) -> None:
        return


class SignalsHarness:
    """The signals under test, with Secrets in memory and counters that answer at once.

    After a change a pool is ordered again, as the reconciler does; `reasons` set_secret the error that it then finds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counters: dict[str, FakeCounter] = {}
        self.secrets: dict[tuple[str, str], dict[str, str]] = {}
        self.policy = TenancyPolicy()
        self.specs: dict[Key, tuple[SentinelOrder, PoolSpec]] = {}
        self.reasons: dict[Key, str] = {}
        self.reads = 0
        self.looks: list[Key] = []
        monkeypatch.setattr(counted_sources, "make_reader", self._make)
        values = SecretValues(self._get, on_change=self._look, jitter=lambda: 1.0)
        self.signals = CountedSources(
            values, lambda: self.policy, on_change=self._look, called=lambda *_: None, now=wall
        )

    def _make(self, kind: str, observed: Any) -> FakeCounter:
        return self.counters.setdefault(kind, FakeCounter())

    async def _get(self, namespace: str, name: str) -> Raw:
        self.reads += 1
        if (namespace, name) not in self.secrets:
            raise ApiError(404, "NotFound", "none")
        data = self.secrets[namespace, name]
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}

    def _look(self, key: Key) -> None:
        self.looks.append(key)
        asyncio.get_running_loop().call_soon(self._reconcile, key)

    def _reconcile(self, key: Key) -> None:
        if key in self.specs:
            _, error = self.signals.latest(key)
            self.reasons[key] = error.reason if error is not None else ""
            self.signals.order(key, *self.specs[key])

    def order(self, spec: PoolSpec, name: str = "a", order: SentinelOrder = COUNT) -> None:
        """Order signals for a pool with this spec, now and after every change."""
        key = ("team", name)
        self.specs[key] = (order, spec)
        self._reconcile(key)

    def set_secret(self, url: str, secret: str = "shop-redis", key: str = "url") -> None:
        self.secrets["team", secret] = {key: url}

    def asked(self, kind: str = "redis") -> set[str]:
        """Return the URLs that were read since the last call."""
        counter = self.counters.get(kind, FakeCounter())
        urls = {endpoint.url for endpoint, _ in counter.asked}
        counter.asked.clear()
        return urls

    def tasks(self, name: str = "a") -> list[int]:
        return [count.tasks for count in self.signals.latest(("team", name))[0]]

    def message(self, name: str = "a") -> str:
        error = self.signals.latest(("team", name))[1]
        return "" if error is None else error.message


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> SignalsHarness:
    return SignalsHarness(monkeypatch)


async def test_queue_is_counted_at_the_url_in_its_secret(harness: SignalsHarness) -> None:
    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(0.1)

    assert (harness.tasks(), harness.message()) == ([7], "")
    (asked, *_) = harness.counters["redis"].asked
    assert asked == (SourceEndpoint(URL, 0.1), ("queue:orders:waiting",))
    await harness.signals.stop()


async def test_atomic_queue_counts_jobs_in_progress_too(harness: SignalsHarness) -> None:
    """Its workers return the jobs of a dead worker, so jobs in progress may wait."""
    harness.order(redis(address="r:1", conclude="Atomic"))
    harness.order(redis(address="r:1"), "b")
    await asyncio.sleep(0.1)

    assert harness.counters["redis"].asked[0][1] == (
        "queue:orders:waiting queue:orders:processing",
        "queue:orders:waiting",
    )
    with_running = {name: harness.signals.latest(("team", name))[0][0].with_running for name in "ab"}
    assert with_running == {"a": True, "b": False}
    await harness.signals.stop()


async def test_running_jobs_of_a_dialect_queue_are_counted_every_5_seconds(harness: SignalsHarness) -> None:
    harness.order(redis(address="r:1", conclude="Atomic"))
    harness.order(redis(address="r:1"), "b")
    await asyncio.sleep(0.1)
    assert {name: harness.signals.latest(("team", name))[0][0].running for name in "ab"} == {"a": 0, "b": 7}

    await asyncio.sleep(20)
    asked = [one.interval_seconds for one, items in harness.counters["redis"].asked if items == RUNNING]
    assert set(asked) == {5.0}
    assert 4 <= len(asked) <= 6

    harness.order(redis(address="r:1"), "b", NOTHING)
    await asyncio.sleep(1)
    harness.counters["redis"].asked.clear()
    await asyncio.sleep(20)
    assert RUNNING not in {items for _, items in harness.counters["redis"].asked}
    await harness.signals.stop()


async def test_queue_at_an_address_needs_no_secret(harness: SignalsHarness) -> None:
    harness.order(redis(address="shop-redis:6379"))
    await asyncio.sleep(0.1)

    assert harness.tasks() == [7]
    assert harness.asked() == {"redis://shop-redis:6379"}
    await harness.signals.stop()


async def test_pools_with_the_same_secret_are_counted_in_one_round(harness: SignalsHarness) -> None:
    harness.set_secret(URL)
    for number in range(50):
        harness.order(redis(f"q{number}"), f"p{number}")
    await asyncio.sleep(1.0)

    assert {len(items) for _, items in harness.counters["redis"].asked} == {50}
    await harness.signals.stop()


async def test_missing_secret_is_reported_and_counting_starts_once_it_exists(harness: SignalsHarness) -> None:
    harness.order(redis())
    await asyncio.sleep(0.1)
    assert harness.reasons["team", "a"] == "SecretNotFound"
    assert "Secret shop-redis in namespace team does not exist: create it" in harness.message()
    assert harness.asked() == set()

    looks = len(harness.looks)
    await asyncio.sleep(300)
    assert len(harness.looks) == looks, "notified without a change"
    harness.set_secret(URL)
    await asyncio.sleep(31)
    assert (harness.reasons["team", "a"], harness.tasks()) == ("", [7])
    await harness.signals.stop()


async def test_refused_password_is_reported_until_the_secret_is_corrected(harness: SignalsHarness) -> None:
    wrong = URL.replace("hunter2", "wrong")
    counter = harness.counters["redis"] = FakeCounter()
    counter.fails[wrong] = SourceProblemError("AccessDenied", "the Redis server redis://shop-redis refuses")
    harness.set_secret(wrong)
    harness.order(redis())
    await asyncio.sleep(600)
    assert harness.reasons["team", "a"] == "AccessDenied"
    assert harness.message().endswith("; its URL is in Secret shop-redis, key url")
    assert harness.tasks() == []

    harness.set_secret(URL)
    await asyncio.sleep(31)
    assert (harness.reasons["team", "a"], harness.tasks()) == ("", [7])
    assert harness.asked() >= {URL}
    await asyncio.sleep(1.0)
    assert harness.asked() == {URL}, "the former URL is no longer read"
    await harness.signals.stop()


async def test_secret_is_read_rarely_once_its_server_is_back(harness: SignalsHarness) -> None:
    counter = harness.counters["redis"] = FakeCounter()
    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(10)
    counter.fails[URL] = SourceProblemError("BackendUnreachable", "no answer")
    await asyncio.sleep(600)
    assert harness.reads > 20, "the Secret may hold a new address of the server"

    counter.fails.clear()
    await asyncio.sleep(60)
    harness.reads = 0
    await asyncio.sleep(1000)
    assert harness.reads <= 5
    await harness.signals.stop()


async def test_rotated_valid_password_moves_the_count_without_an_error(harness: SignalsHarness) -> None:
    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(10)
    harness.set_secret(URL.replace("hunter2", "hunter3"))
    await asyncio.sleep(300)

    assert (harness.reasons["team", "a"], harness.tasks()) == ("", [7])
    harness.asked()
    await asyncio.sleep(1.0)
    assert harness.asked() == {URL.replace("hunter2", "hunter3")}
    await harness.signals.stop()


async def test_deleted_secret_makes_the_backlog_unknown(harness: SignalsHarness) -> None:
    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(10)
    del harness.secrets["team", "shop-redis"]
    await asyncio.sleep(300)

    assert (harness.tasks(), harness.reasons["team", "a"]) == ([], "SecretNotFound")
    await harness.signals.stop()


@pytest.mark.parametrize(
    ("url", "words"),
    [("hunter2", "scheme '?'"), ("rediss://shop-redis?ssl_ca_certs=/ca", "ssl_ca_data")],
)
async def test_error_of_an_unusable_url_names_its_secret(harness: SignalsHarness, url: str, words: str) -> None:
    harness.set_secret(url)
    harness.order(redis())
    await asyncio.sleep(0.1)
    assert harness.reasons["team", "a"] == "SecretUnusable"
    assert harness.message().startswith("in Secret shop-redis, key url: ")
    assert words in harness.message()
    assert "hunter2" not in harness.message()

    await asyncio.sleep(600)
    harness.set_secret(URL)
    await asyncio.sleep(31)
    assert harness.tasks() == [7]
    await harness.signals.stop()


async def test_unusable_address_is_an_invalid_spec(harness: SignalsHarness) -> None:
    harness.order(redis(address="shop-redis:99999"))
    await settle()

    assert harness.reasons["team", "a"] == "InvalidSpec"
    assert harness.message().startswith("in spec.source.redis.address: ")
    await harness.signals.stop()


async def test_host_is_read_only_while_the_policy_allows_it(
    harness: SignalsHarness,
) -> None:
    harness.policy = ONLY_SHOP
    harness.set_secret("redis://evil:6379")
    harness.order(redis())
    await asyncio.sleep(1.0)
    assert harness.reasons["team", "a"] == "TenancyDenied"
    assert "the source's host 'evil:6379' is not allowed in namespace team" in harness.message()
    assert harness.asked() == set()

    harness.policy = TenancyPolicy()
    harness.order(redis())
    await asyncio.sleep(1.0)
    assert (harness.tasks(), harness.reasons["team", "a"]) == ([7], "")

    harness.policy = ONLY_SHOP
    harness.order(redis())
    await asyncio.sleep(1.0)
    assert (harness.tasks(), harness.reasons["team", "a"]) == ([], "TenancyDenied")
    await harness.signals.stop()


async def test_endpoint_names_the_hosts_that_its_server_may_lead_to(harness: SignalsHarness) -> None:
    harness.policy = ONLY_SHOP
    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(1.0)

    assert {endpoint.source_hosts for endpoint, _ in harness.counters["redis"].asked} == {("shop-*:6379",)}
    await harness.signals.stop()


async def test_secret_changed_to_a_refused_host_stops_counting(harness: SignalsHarness) -> None:
    harness.policy = ONLY_SHOP
    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(10)
    harness.set_secret("redis://evil:6379")
    await asyncio.sleep(300)

    assert harness.reasons["team", "a"] == "TenancyDenied"
    assert harness.asked() == {URL}
    await harness.signals.stop()


async def test_paused_or_deleted_pool_reads_no_secret_and_no_queue(harness: SignalsHarness) -> None:
    harness.order(redis(), order=NOTHING)
    await asyncio.sleep(10)
    assert (harness.looks, harness.asked()) == ([], set())

    harness.set_secret(URL)
    harness.order(redis())
    await asyncio.sleep(10)
    harness.order(redis(), order=NOTHING)
    harness.asked()
    await asyncio.sleep(600)
    assert (harness.tasks(), harness.message(), harness.asked()) == ([], "", set())

    harness.order(redis())
    await asyncio.sleep(10)
    harness.specs.clear()
    harness.signals.withdraw(("team", "a"))
    harness.asked()
    await asyncio.sleep(600)
    assert (harness.tasks(), harness.asked()) == ([], set())
    await harness.signals.stop()


async def test_pool_withdrawn_during_its_secret_read_stays_withdrawn(harness: SignalsHarness) -> None:
    harness.set_secret(URL)
    harness.order(redis())
    harness.specs.clear()
    harness.signals.withdraw(("team", "a"))
    await asyncio.sleep(10)

    assert (harness.looks, harness.asked()) == ([], set())
    await harness.signals.stop()


async def test_new_term_begins_without_counts(harness: SignalsHarness) -> None:
    harness.set_secret(URL)
    harness.order(redis())
    harness.order(redis("x", "none"), "b")
    await asyncio.sleep(10)
    harness.specs.clear()
    harness.signals.pause()
    assert (harness.tasks(), harness.message("b")) == ([], "")
    reads = harness.reads
    await asyncio.sleep(3600.0)
    assert harness.reads == reads, "a former leader reads no Secret"

    harness.order(redis())
    assert harness.tasks() == []
    await asyncio.sleep(0.1)
    assert harness.tasks() == [7]
    await harness.signals.stop()


async def test_pool_with_a_changed_source_is_counted_only_at_the_new_one(harness: SignalsHarness) -> None:
    harness.order(redis(address="r:1"))
    await asyncio.sleep(1.0)
    raw = {"source": {"taskStore": {"url": "postgresql://tasks@db/tasks"}}, "handlerImage": "h", "maxWorkers": 1}
    harness.order(PoolSpec.model_validate(raw))
    harness.asked()
    await asyncio.sleep(5.0)

    assert (harness.asked(), harness.asked("taskStore")) == (set(), {"postgresql://tasks@db/tasks"})
    assert harness.tasks() == [7]
    await harness.signals.stop()


async def test_prometheus_is_queried_with_the_token_of_its_secret(harness: SignalsHarness) -> None:
    harness.secrets["team", "prom"] = {"token": "hunter2"}
    spec = watched(tokenSecretRef={"name": "prom", "key": "token"}, intervalSeconds=5)
    harness.order(spec, order=SentinelOrder(counts=True, watched=True))
    await asyncio.sleep(1.0)

    signals, error = harness.signals.latest(("team", "a"))
    assert ([(one.tasks, one.exact) for one in signals], error) == ([(7, True), (7, False)], None)
    assert harness.counters["prometheus"].asked[0] == (SourceEndpoint("http://prom", 5.0, "hunter2"), ("q",))
    await harness.signals.stop()


async def test_prometheus_error_does_not_name_the_url_of_the_source(harness: SignalsHarness) -> None:
    counter = harness.counters["prometheus"] = FakeCounter()
    counter.fails["http://prom"] = SourceProblemError("QueryFailed", "parse error")
    harness.order(watched(), order=SentinelOrder(counts=True, watched=True))
    await asyncio.sleep(1.0)

    assert harness.message() == "parse error"
    assert harness.tasks() == [7]
    await harness.signals.stop()


async def test_taskbroker_is_counted_once_both_of_its_secrets_are_read(harness: SignalsHarness) -> None:
    broker = {
        "addresses": ["b:1", "a:1"],
        "application": "shop",
        "tls": True,
        "signingSecretRef": {"name": "broker", "key": "secrets"},
        "caSecretRef": {"name": "ca", "key": "ca"},
    }
    raw = {"source": {"taskbroker": broker}, "handlerImage": "h", "maxWorkers": 1}
    harness.set_secret('["willow"]', "broker", "secrets")
    harness.order(PoolSpec.model_validate(raw))
    await asyncio.sleep(1.0)
    assert harness.message().startswith("Secret ca in namespace team does not exist")
    assert harness.asked("taskbroker") == set()

    harness.set_secret("PEM", "ca", "ca")
    await asyncio.sleep(31)
    assert (harness.tasks(), harness.message()) == ([7], "")
    assert harness.counters["taskbroker"].asked[0] == (
        SourceEndpoint("taskbrokers://a:1,b:1", 0.5, '["willow"]', ca="PEM"),
        ('["shop", null]',),
    )
    harness.policy = ONLY_SHOP
    harness.order(PoolSpec.model_validate(raw))
    assert harness.reasons["team", "a"] == "TenancyDenied" or harness.message().startswith("the source's host 'a:1'")
    await harness.signals.stop()


@pytest.mark.parametrize(
    ("kind", "url", "named"),
    [
        ("taskbroker", "taskbroker://B.shop.svc:1,[::1]:2", ["b.shop.svc:1", "[::1]:2"]),
        ("redis", "redis://:a@Shop-Redis", ["shop-redis:6379"]),
        ("redis", "redis+sentinel://S1,s2:1/shop", ["s1:26379", "s2:1"]),
        ("taskStore", STORE, ["db:5432"]),
        ("taskStore", "postgresql://a:b@DB1:1,db2/tasks", ["db1:1", "db2:5432"]),
        ("taskStore", "postgresql://[::1]/tasks", ["[::1]:5432"]),
        ("taskStore", "postgresql://me@evil:1,x@good:2/tasks", ["good:2"]),
    ],
)
def test_policy_gets_every_host_of_a_url_in_lower_case_with_its_port(kind: Any, url: str, named: list[str]) -> None:
    assert list(hosts_of(kind, url)) == named
