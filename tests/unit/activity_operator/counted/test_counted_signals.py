"""From a pool's spec to a count: the URL from its Secret, what the policy allows, and why there is no count."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from activity_operator import counted_signals
from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.counting import Place
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.cluster.kinds import Key, Raw
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.secret_values import SecretValues
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.tenancy import Policy, Rule
from activity_operator.counted_signals import CountedSignals, hosts_of
from tests.unit.activity_operator.virtual_time import settle, wall

COUNT = SentinelOrder(counts=True)
NOTHING = SentinelOrder()
URL = "redis://:hunter2@shop-redis:6379"
STORE = "postgresql://tasks:hunter2@db/tasks"
ONLY_SHOP = Policy((Rule(source_hosts=("shop-*:6379",)),))


def redis(queue: str = "orders", secret: str = "shop-redis", **more: Any) -> PoolSpec:
    """Return the spec of a pool on a Redis queue, whose URL is in a Secret unless an address is given."""
    where = {} if "address" in more else {"urlSecretRef": {"name": secret, "key": "url"}}
    source = {"redis": {"flow": "shop", "queue": queue, **where, **more}}
    return PoolSpec.model_validate({"source": source, "handlerImage": "h", "maxWorkers": 1})


def watched(**more: Any) -> PoolSpec:
    """Return the spec of a pool beside whose source a Prometheus server is asked."""
    prometheus = {"serverUrl": "http://prom", "query": "q", **more}
    raw = {"source": {"redis": {"address": "r:1", "flow": "f", "queue": "q"}}, "handlerImage": "h", "maxWorkers": 1}
    return PoolSpec.model_validate({**raw, "scaling": {"prometheus": prometheus}})


class FakeCounter:
    """Counts 7 for everything; `fails` by URL."""

    def __init__(self) -> None:
        self.fails: dict[str, SourceProblemError] = {}
        self.asked: list[tuple[Place, tuple[str, ...]]] = []

    async def read(self, place: Place, items: Sequence[str]) -> Sequence[int | SourceProblemError]:
        self.asked.append((place, tuple(items)))
        if place.url in self.fails:
            raise self.fails[place.url]
        return [7] * len(items)

    async def rest(self, place: Place, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def leave(self, place: Place) -> None:
        return


class Desk:
    """The signals under test, over Secrets in memory and counters that answer at once.

    A pool that is to be looked at is ordered again, as the reconciler does; `heard` is what such a look sees.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counters: dict[str, FakeCounter] = {}
        self.secrets: dict[tuple[str, str], dict[str, str]] = {}
        self.policy = Policy()
        self.specs: dict[Key, tuple[SentinelOrder, PoolSpec]] = {}
        self.heard: dict[Key, str] = {}
        self.reads = 0
        self.looks: list[Key] = []
        monkeypatch.setattr(counted_signals, "make_counter", self._make)
        values = SecretValues(self._get, on_change=self._look, dice=lambda: 0.0)
        self.signals = CountedSignals(
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
            _, error = self.signals.said(key)
            self.heard[key] = error.reason if error is not None else ""
            self.signals.order(key, *self.specs[key])

    def order(self, spec: PoolSpec, name: str = "a", order: SentinelOrder = COUNT) -> None:
        """Let a pool have this spec and order from now on."""
        key = ("team", name)
        self.specs[key] = (order, spec)
        self._reconcile(key)

    def holds(self, url: str, secret: str = "shop-redis", key: str = "url") -> None:
        self.secrets["team", secret] = {key: url}

    def asked(self, kind: str = "redis") -> set[str]:
        """Return the URLs that were asked since this was asked last."""
        counter = self.counters.get(kind, FakeCounter())
        urls = {place.url for place, _ in counter.asked}
        counter.asked.clear()
        return urls

    def tasks(self, name: str = "a") -> list[int]:
        return [signal.tasks for signal in self.signals.said(("team", name))[0]]

    def message(self, name: str = "a") -> str:
        error = self.signals.said(("team", name))[1]
        return "" if error is None else error.message


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


async def test_a_queue_is_counted_at_the_url_of_its_secret(desk: Desk) -> None:
    desk.holds(URL)
    desk.order(redis())
    await asyncio.sleep(0.1)

    assert (desk.tasks(), desk.message()) == ([7], "")
    (asked, *_) = desk.counters["redis"].asked
    assert asked == (Place(URL, 0.1), ("queue:orders:waiting",))
    await desk.signals.stop()


async def test_where_workers_put_back_a_dead_ones_jobs_those_under_way_are_counted_too(desk: Desk) -> None:
    desk.order(redis(address="r:1", conclude="Atomic"))
    desk.order(redis(address="r:1"), "b")
    await asyncio.sleep(0.1)

    assert desk.counters["redis"].asked[0][1] == (
        "queue:orders:waiting queue:orders:processing",
        "queue:orders:waiting",
    )
    with_running = {name: desk.signals.said(("team", name))[0][0].with_running for name in "ab"}
    assert with_running == {"a": True, "b": False}
    await desk.signals.stop()


async def test_a_queue_at_an_address_needs_no_secret(desk: Desk) -> None:
    desk.order(redis(address="shop-redis:6379"))
    await asyncio.sleep(0.1)

    assert desk.tasks() == [7]
    assert desk.asked() == {"redis://shop-redis:6379"}
    await desk.signals.stop()


async def test_pools_that_name_one_secret_are_counted_together(desk: Desk) -> None:
    desk.holds(URL)
    for number in range(50):
        desk.order(redis(f"q{number}"), f"p{number}")
    await asyncio.sleep(1.0)

    assert {len(items) for _, items in desk.counters["redis"].asked} == {50}
    await desk.signals.stop()


async def test_a_missing_secret_is_heard_by_the_next_look_and_the_pool_counts_when_it_comes(desk: Desk) -> None:
    desk.order(redis())
    await asyncio.sleep(0.1)
    assert desk.heard["team", "a"] == "SecretNotFound"
    assert "Secret shop-redis in namespace team does not exist: create it" in desk.message()
    assert desk.asked() == set()

    looks = len(desk.looks)
    await asyncio.sleep(300)
    assert len(desk.looks) == looks, "told while nothing changed"
    desk.holds(URL)
    await asyncio.sleep(31)
    assert (desk.heard["team", "a"], desk.tasks()) == ("", [7])
    await desk.signals.stop()


async def test_a_refused_password_is_heard_and_gone_soon_after_the_secret_is_corrected(desk: Desk) -> None:
    wrong = URL.replace("hunter2", "wrong")
    counter = desk.counters["redis"] = FakeCounter()
    counter.fails[wrong] = SourceProblemError("AccessDenied", "the Redis server redis://shop-redis refuses")
    desk.holds(wrong)
    desk.order(redis())
    await asyncio.sleep(600)
    assert desk.heard["team", "a"] == "AccessDenied"
    assert desk.message().endswith("; its URL is in Secret shop-redis, key url")
    assert desk.tasks() == []

    desk.holds(URL)
    await asyncio.sleep(31)
    assert (desk.heard["team", "a"], desk.tasks()) == ("", [7])
    assert desk.asked() >= {URL}
    await asyncio.sleep(1.0)
    assert desk.asked() == {URL}, "the former URL is asked no more"
    await desk.signals.stop()


async def test_a_secret_is_read_rarely_again_once_its_server_is_back(desk: Desk) -> None:
    counter = desk.counters["redis"] = FakeCounter()
    desk.holds(URL)
    desk.order(redis())
    await asyncio.sleep(10)
    counter.fails[URL] = SourceProblemError("BackendUnreachable", "no answer")
    await asyncio.sleep(600)
    assert desk.reads > 20, "perhaps the server has moved, and the Secret with it"

    counter.fails.clear()
    await asyncio.sleep(60)
    desk.reads = 0
    await asyncio.sleep(1000)
    assert desk.reads <= 5
    await desk.signals.stop()


async def test_a_rotated_password_that_both_are_good_moves_the_count_without_a_word(desk: Desk) -> None:
    desk.holds(URL)
    desk.order(redis())
    await asyncio.sleep(10)
    desk.holds(URL.replace("hunter2", "hunter3"))
    await asyncio.sleep(300)

    assert (desk.heard["team", "a"], desk.tasks()) == ("", [7])
    desk.asked()
    await asyncio.sleep(1.0)
    assert desk.asked() == {URL.replace("hunter2", "hunter3")}
    await desk.signals.stop()


async def test_a_secret_that_goes_away_makes_the_backlog_unknown_not_zero(desk: Desk) -> None:
    desk.holds(URL)
    desk.order(redis())
    await asyncio.sleep(10)
    del desk.secrets["team", "shop-redis"]
    await asyncio.sleep(300)

    assert (desk.tasks(), desk.heard["team", "a"]) == ([], "SecretNotFound")
    await desk.signals.stop()


@pytest.mark.parametrize(
    ("url", "words"),
    [("hunter2", "scheme '?'"), ("rediss://shop-redis?ssl_ca_certs=/ca", "ssl_ca_data")],
)
async def test_a_url_that_cannot_be_used_is_said_with_the_secret_that_holds_it(
    desk: Desk, url: str, words: str
) -> None:
    desk.holds(url)
    desk.order(redis())
    await asyncio.sleep(0.1)
    assert desk.heard["team", "a"] == "SecretUnusable"
    assert desk.message().startswith("in Secret shop-redis, key url: ")
    assert words in desk.message()
    assert "hunter2" not in desk.message()

    await asyncio.sleep(600)
    desk.holds(URL)
    await asyncio.sleep(31)
    assert desk.tasks() == [7]
    await desk.signals.stop()


async def test_an_address_that_cannot_be_used_is_the_specs_fault(desk: Desk) -> None:
    desk.order(redis(address="shop-redis:99999"))
    await settle()

    assert desk.heard["team", "a"] == "InvalidSpec"
    assert desk.message().startswith("in spec.source.redis.address: ")
    await desk.signals.stop()


async def test_a_host_that_the_policy_refuses_is_not_asked_until_it_is_allowed_and_no_more_when_it_is_refused(
    desk: Desk,
) -> None:
    desk.policy = ONLY_SHOP
    desk.holds("redis://evil:6379")
    desk.order(redis())
    await asyncio.sleep(1.0)
    assert desk.heard["team", "a"] == "TenancyDenied"
    assert "the source's host 'evil:6379' is not allowed in namespace team" in desk.message()
    assert desk.asked() == set()

    desk.policy = Policy()
    desk.order(redis())
    await asyncio.sleep(1.0)
    assert (desk.tasks(), desk.heard["team", "a"]) == ([7], "")

    desk.policy = ONLY_SHOP
    desk.order(redis())
    await asyncio.sleep(1.0)
    assert (desk.tasks(), desk.heard["team", "a"]) == ([], "TenancyDenied")
    await desk.signals.stop()


async def test_a_secret_that_is_pointed_at_a_refused_host_is_asked_no_more(desk: Desk) -> None:
    desk.policy = ONLY_SHOP
    desk.holds(URL)
    desk.order(redis())
    await asyncio.sleep(10)
    desk.holds("redis://evil:6379")
    await asyncio.sleep(300)

    assert desk.heard["team", "a"] == "TenancyDenied"
    assert desk.asked() == {URL}
    await desk.signals.stop()


async def test_a_pool_that_is_paused_or_deleted_reads_neither_its_secret_nor_its_queue(desk: Desk) -> None:
    desk.order(redis(), order=NOTHING)
    await asyncio.sleep(10)
    assert (desk.looks, desk.asked()) == ([], set())

    desk.holds(URL)
    desk.order(redis())
    await asyncio.sleep(10)
    desk.order(redis(), order=NOTHING)
    desk.asked()
    await asyncio.sleep(600)
    assert (desk.tasks(), desk.message(), desk.asked()) == ([], "", set())

    desk.order(redis())
    await asyncio.sleep(10)
    desk.specs.clear()
    desk.signals.withdraw(("team", "a"))
    desk.asked()
    await asyncio.sleep(600)
    assert (desk.tasks(), desk.asked()) == ([], set())
    await desk.signals.stop()


async def test_a_pool_that_is_withdrawn_while_its_secret_is_read_stays_so(desk: Desk) -> None:
    desk.holds(URL)
    desk.order(redis())
    desk.specs.clear()
    desk.signals.withdraw(("team", "a"))
    await asyncio.sleep(10)

    assert (desk.looks, desk.asked()) == ([], set())
    await desk.signals.stop()


async def test_a_new_term_begins_with_nothing_known(desk: Desk) -> None:
    desk.holds(URL)
    desk.order(redis())
    desk.order(redis("x", "none"), "b")
    await asyncio.sleep(10)
    desk.specs.clear()
    desk.signals.pause()
    assert (desk.tasks(), desk.message("b")) == ([], "")
    reads = desk.reads
    await asyncio.sleep(3600.0)
    assert desk.reads == reads, "who leads no more reads no Secret"

    desk.order(redis())
    assert desk.tasks() == []
    await asyncio.sleep(0.1)
    assert desk.tasks() == [7]
    await desk.signals.stop()


async def test_a_pool_that_changes_its_kind_of_source_is_counted_at_the_new_one_only(desk: Desk) -> None:
    desk.order(redis(address="r:1"))
    await asyncio.sleep(1.0)
    raw = {"source": {"taskStore": {"url": "postgresql://tasks@db/tasks"}}, "handlerImage": "h", "maxWorkers": 1}
    desk.order(PoolSpec.model_validate(raw))
    desk.asked()
    await asyncio.sleep(5.0)

    assert (desk.asked(), desk.asked("taskStore")) == (set(), {"postgresql://tasks@db/tasks"})
    assert desk.tasks() == [7]
    await desk.signals.stop()


async def test_prometheus_is_asked_beside_the_source_and_with_the_token_of_its_secret(desk: Desk) -> None:
    desk.secrets["team", "prom"] = {"token": "hunter2"}
    spec = watched(tokenSecretRef={"name": "prom", "key": "token"}, intervalSeconds=5)
    desk.order(spec, order=SentinelOrder(counts=True, watched=True))
    await asyncio.sleep(1.0)

    signals, error = desk.signals.said(("team", "a"))
    assert ([(one.tasks, one.exact) for one in signals], error) == ([(7, True), (7, False)], None)
    assert desk.counters["prometheus"].asked[0] == (Place("http://prom", 5.0, "hunter2"), ("q",))
    await desk.signals.stop()


async def test_what_prometheus_fails_at_says_nothing_of_the_sources_url(desk: Desk) -> None:
    counter = desk.counters["prometheus"] = FakeCounter()
    counter.fails["http://prom"] = SourceProblemError("QueryFailed", "parse error")
    desk.order(watched(), order=SentinelOrder(counts=True, watched=True))
    await asyncio.sleep(1.0)

    assert desk.message() == "parse error"
    assert desk.tasks() == [7]
    await desk.signals.stop()


@pytest.mark.parametrize(
    ("kind", "url", "named"),
    [
        ("redis", "redis://:a@Shop-Redis", ["shop-redis:6379"]),
        ("redis", "redis+sentinel://S1,s2:1/shop", ["s1:26379", "s2:1"]),
        ("taskStore", STORE, ["db:5432"]),
        ("taskStore", "postgresql://a:b@DB1:1,db2/tasks", ["db1:1", "db2:5432"]),
        ("taskStore", "postgresql://[::1]/tasks", ["[::1]:5432"]),
        ("taskStore", "postgresql://me@evil:1,x@good:2/tasks", ["good:2"]),
    ],
)
def test_the_policy_sees_every_host_of_a_url_in_lower_case_with_its_port(kind: Any, url: str, named: list[str]) -> None:
    assert list(hosts_of(kind, url)) == named


@pytest.mark.parametrize(
    ("order", "loaded"),
    [("", []), ("ask('redis')", ["hiredis"]), ("ask('taskStore')", ["asyncpg"])],
    ids=["no counted pool", "a Redis pool", "a task store"],
)
def test_only_what_a_pool_uses_is_imported(order: str, loaded: list[str]) -> None:
    script = (
        "import sys\nimport activity_operator.rooms\nfrom activity_operator import counted_signals\n"
        "def ask(kind): counted_signals.make_counter(kind, lambda *a: None)\n"
        f"{order}\nprint([name for name in ('hiredis', 'asyncpg', 'redis', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(loaded)
