"""Secret values: read when first needed, rarely while valid, and soon while missing or doubted."""

import asyncio
import base64
from itertools import pairwise

import pytest

from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.resources import Key, Raw
from activity_operator.cluster.secret_values import SecretRef, SecretValue, SecretValues
from tests.unit.activity_operator.virtual_time import elapsed, settle

SHOP = SecretRef("team", "shop-redis", "url")
KEY, OTHER = ("team", "orders"), ("team", "mails")
URL = "redis://:hunter2@shop"
MISSING = ApiError(404, "NotFound", 'secrets "shop-redis" not found')
FORBIDDEN = ApiError(403, "Forbidden", "secrets is forbidden")


class RecordedSecrets:
    """Secret values over an API in memory, with the keys that were notified and the times of reads."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {"url": base64.b64encode(URL.encode()).decode()}
        self.fails: Exception | None = None
        self.reads: list[float] = []
        self.changed: list[Key] = []
        self.jitter = 1.0
        self.values = SecretValues(self._get, on_change=self.changed.append, jitter=lambda: self.jitter)

    async def _get(self, namespace: str, name: str) -> Raw:
        self.reads.append(elapsed())
        assert (namespace, name) == ("team", "shop-redis")
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        return {"data": dict(self.data)}

    def set_secret(self, value: str) -> None:
        self.data["url"] = base64.b64encode(value.encode()).decode()

    def gaps(self) -> list[float]:
        return [round(later - sooner, 1) for sooner, later in pairwise(self.reads)]

    async def found(self, key: Key = KEY, ref: SecretRef = SHOP) -> SecretValue:
        """Order the value, wait for its first read and return it."""
        self.values.follow(key, "source", ref)
        await settle()
        found = self.values.follow(key, "source", ref)
        assert found is not None
        return found


@pytest.fixture
def recorded() -> RecordedSecrets:
    return RecordedSecrets()


async def test_value_is_read_once_for_all_pools_and_each_is_notified(recorded: RecordedSecrets) -> None:
    keys = [("team", f"pool-{number}") for number in range(500)]
    assert [recorded.values.follow(key, "source", SHOP) for key in keys] == [None] * 500
    await settle()

    assert len(recorded.reads) == 1
    assert sorted(recorded.changed) == sorted(keys)
    assert {recorded.values.follow(key, "source", SHOP) for key in keys} == {SecretValue(URL)}
    recorded.values.pause()


async def test_trusted_value_is_read_every_5_minutes_and_notified_on_change(
    recorded: RecordedSecrets,
) -> None:
    await recorded.found()
    await asyncio.sleep(1000)
    assert set(recorded.gaps()) == {300.0}
    assert len(recorded.changed) == 1

    recorded.set_secret("redis://:new@shop")
    await asyncio.sleep(240)
    assert (len(recorded.changed), (await recorded.found()).value) == (2, "redis://:new@shop")
    recorded.values.pause()


@pytest.mark.parametrize(
    ("fails", "data", "reason", "words"),
    [
        (MISSING, {}, "SecretNotFound", "Secret shop-redis in namespace team does not exist: create it"),
        (FORBIDDEN, {}, "SecretForbidden", "secretNamespaces"),
        (None, {"uri": "eA=="}, "SecretNotFound", "has no key url: add it"),
        (None, {"url": ""}, "SecretUnusable", "is empty: fill it"),
        (None, {"url": "ICAK"}, "SecretUnusable", "is empty: fill it"),
        (None, {"url": "/w=="}, "SecretUnusable", "is no text"),
    ],
    ids=["missing", "forbidden", "key missing", "empty", "blank", "not text"],
)
async def test_error_of_a_secret_names_the_fix(
    recorded: RecordedSecrets, fails: Exception | None, data: dict[str, str], reason: str, words: str
) -> None:
    recorded.fails, recorded.data = fails, data
    found = await recorded.found()

    assert (found.value, found.reason) == ("", reason)
    assert words in found.message
    recorded.values.pause()


async def test_missing_secret_is_read_with_backoff_up_to_30_seconds(recorded: RecordedSecrets) -> None:
    recorded.fails = MISSING
    await recorded.found()
    await asyncio.sleep(200)
    assert recorded.gaps() == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0]

    recorded.fails = None
    await asyncio.sleep(30)
    assert recorded.changed == [KEY, KEY]
    assert (await recorded.found()).value == URL
    recorded.values.pause()


async def test_longest_wait_for_a_missing_secret_has_jitter(recorded: RecordedSecrets) -> None:
    recorded.fails, recorded.jitter = MISSING, 0.0
    await recorded.found()
    await asyncio.sleep(200)

    assert recorded.gaps()[-3:] == [15.0, 15.0, 15.0]
    recorded.values.pause()


async def test_value_stays_while_the_api_server_fails(recorded: RecordedSecrets) -> None:
    await recorded.found()
    for broken in (ApiUnreachableError("no answer"), ApiError(500, "InternalError", "oops"), ZeroDivisionError()):
        recorded.fails = broken
        await asyncio.sleep(300)
        assert (await recorded.found()).value == URL
    recorded.fails = None
    recorded.set_secret("redis://new")
    await asyncio.sleep(300)

    assert (await recorded.found()).value == "redis://new"
    recorded.values.pause()


async def test_deleted_secret_is_reported_as_missing(recorded: RecordedSecrets) -> None:
    await recorded.found()
    recorded.fails = MISSING
    await asyncio.sleep(300)

    assert (await recorded.found()).reason == "SecretNotFound"
    assert len(recorded.changed) == 2
    recorded.values.pause()


async def test_doubted_value_is_read_at_once_and_until_it_is_trusted(recorded: RecordedSecrets) -> None:
    await recorded.found()
    await asyncio.sleep(100)
    recorded.values.source_failed(KEY, "source")
    await settle()
    assert len(recorded.reads) == 2

    await asyncio.sleep(70)
    assert recorded.gaps() == [100.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    recorded.values.source_works(KEY, "source")
    await asyncio.sleep(700)
    assert recorded.gaps()[9:] == [300.0, 300.0]
    recorded.values.pause()


async def test_late_correction_of_a_doubted_value_is_found_within_30_seconds(recorded: RecordedSecrets) -> None:
    await recorded.found()
    recorded.values.source_failed(KEY, "source")
    await asyncio.sleep(3600)
    recorded.set_secret("redis://:right@shop")
    await asyncio.sleep(30)

    assert (await recorded.found()).value == "redis://:right@shop"
    asked = len(recorded.reads)
    await asyncio.sleep(200)
    assert len(recorded.reads) == asked, "the doubt concerned the former value only"
    recorded.values.pause()


async def test_500_doubts_at_once_cause_at_most_one_read_a_second(recorded: RecordedSecrets) -> None:
    keys = [("team", f"pool-{number}") for number in range(500)]
    for key in keys:
        recorded.values.follow(key, "source", SHOP)
    await asyncio.sleep(100)
    for key in keys:
        recorded.values.source_failed(key, "source")
    await asyncio.sleep(0.9)

    assert len(recorded.reads) == 2
    recorded.values.pause()


async def test_repeated_doubts_cause_no_more_reads(recorded: RecordedSecrets) -> None:
    await recorded.found()
    for _ in range(600):
        recorded.values.source_failed(KEY, "source")
        await asyncio.sleep(0.1)

    assert len(recorded.reads) < 10
    recorded.values.pause()


async def test_doubt_ends_when_its_pool_leaves(recorded: RecordedSecrets) -> None:
    await recorded.found()
    await recorded.found(OTHER)
    recorded.values.source_failed(OTHER, "source")
    await asyncio.sleep(5)
    recorded.values.follow(OTHER, "source", None)
    recorded.values.source_failed(OTHER, "source")
    await asyncio.sleep(60)
    recorded.reads.clear()
    await asyncio.sleep(230)

    assert len(recorded.reads) <= 1
    recorded.values.pause()


async def test_pool_that_uses_a_value_twice_may_leave_one_use(recorded: RecordedSecrets) -> None:
    await recorded.found()
    recorded.values.follow(KEY, "prometheus", SHOP)
    recorded.values.follow(KEY, "source", None)
    recorded.set_secret("new")
    await asyncio.sleep(301)

    assert recorded.changed == [KEY, KEY]
    assert recorded.values.follow(KEY, "prometheus", SHOP) == SecretValue("new")
    recorded.values.pause()


async def test_secret_is_not_read_after_the_last_pool_has_left(recorded: RecordedSecrets) -> None:
    await recorded.found()
    recorded.values.follow(KEY, "source", None)
    asked = len(recorded.reads)
    await asyncio.sleep(1000)
    assert len(recorded.reads) == asked

    assert recorded.values.follow(KEY, "source", SHOP) is None
    await settle()
    assert len(recorded.reads) == asked + 1
    recorded.values.pause()


def test_repr_of_a_secret_value_hides_it() -> None:
    assert "hunter2" not in repr(SecretValue(URL))
