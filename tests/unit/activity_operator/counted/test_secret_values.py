"""A Secret is read when a pool first needs it, rarely while all is well, and soon while it is missing or doubted."""

import asyncio
import base64
from itertools import pairwise

import pytest

from activity_operator.cluster.kinds import Key, Raw
from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.secret_values import SecretRef, SecretValue, SecretValues
from tests.unit.activity_operator.virtual_time import elapsed, settle

SHOP = SecretRef("team", "shop-redis", "url")
KEY, OTHER = ("team", "orders"), ("team", "mails")
URL = "redis://:hunter2@shop"
MISSING = ApiError(404, "NotFound", 'secrets "shop-redis" not found')
FORBIDDEN = ApiError(403, "Forbidden", "secrets is forbidden")


class Told:
    """Secret values over an API in memory; who was told of a change; when which Secret was read."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {"url": base64.b64encode(URL.encode()).decode()}
        self.fails: Exception | None = None
        self.reads: list[float] = []
        self.changed: list[Key] = []
        self.values = SecretValues(self._get, on_change=self.changed.append, dice=lambda: 0.0)

    async def _get(self, namespace: str, name: str) -> Raw:
        self.reads.append(elapsed())
        assert (namespace, name) == ("team", "shop-redis")
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        return {"data": dict(self.data)}

    def holds(self, value: str) -> None:
        self.data["url"] = base64.b64encode(value.encode()).decode()

    def gaps(self) -> list[float]:
        return [round(later - sooner, 1) for sooner, later in pairwise(self.reads)]

    async def found(self, key: Key = KEY, ref: SecretRef = SHOP) -> SecretValue:
        """Order it, wait for the first answer and return that."""
        self.values.order(key, "source", ref)
        await settle()
        found = self.values.order(key, "source", ref)
        assert found is not None
        return found


@pytest.fixture
def told() -> Told:
    return Told()


async def test_a_value_is_read_once_for_all_who_name_it_and_each_is_told(told: Told) -> None:
    keys = [("team", f"pool-{number}") for number in range(500)]
    assert [told.values.order(key, "source", SHOP) for key in keys] == [None] * 500
    await settle()

    assert len(told.reads) == 1
    assert sorted(told.changed) == sorted(keys)
    assert {told.values.order(key, "source", SHOP) for key in keys} == {SecretValue(URL)}
    told.values.pause()


async def test_a_value_that_nobody_doubts_is_read_again_every_few_minutes_and_told_only_when_it_changed(
    told: Told,
) -> None:
    await told.found()
    await asyncio.sleep(1000)
    assert set(told.gaps()) == {240.0}
    assert len(told.changed) == 1

    told.holds("redis://:new@shop")
    await asyncio.sleep(240)
    assert (len(told.changed), (await told.found()).value) == (2, "redis://:new@shop")
    told.values.pause()


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
async def test_what_is_wrong_with_a_secret_is_said_with_the_fix(
    told: Told, fails: Exception | None, data: dict[str, str], reason: str, words: str
) -> None:
    told.fails, told.data = fails, data
    found = await told.found()

    assert (found.value, found.reason) == ("", reason)
    assert words in found.message
    told.values.pause()


async def test_a_missing_secret_is_looked_for_ever_more_rarely_and_found_within_half_a_minute(told: Told) -> None:
    told.fails = MISSING
    await told.found()
    await asyncio.sleep(200)
    assert told.gaps() == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0]

    told.fails = None
    await asyncio.sleep(30)
    assert told.changed == [KEY, KEY]
    assert (await told.found()).value == URL
    told.values.pause()


async def test_what_is_known_stays_while_the_api_server_cannot_say(told: Told) -> None:
    await told.found()
    for broken in (ApiUnreachableError("no answer"), ApiError(500, "InternalError", "oops"), ZeroDivisionError()):
        told.fails = broken
        await asyncio.sleep(300)
        assert (await told.found()).value == URL
    told.fails = None
    told.holds("redis://new")
    await asyncio.sleep(300)

    assert (await told.found()).value == "redis://new"
    told.values.pause()


async def test_a_secret_that_is_deleted_later_is_missing(told: Told) -> None:
    await told.found()
    told.fails = MISSING
    await asyncio.sleep(300)

    assert (await told.found()).reason == "SecretNotFound"
    assert len(told.changed) == 2
    told.values.pause()


async def test_a_doubted_value_is_read_again_at_once_and_until_it_is_trusted(told: Told) -> None:
    await told.found()
    await asyncio.sleep(100)
    told.values.doubt(KEY, "source")
    await settle()
    assert len(told.reads) == 2

    await asyncio.sleep(70)
    assert told.gaps() == [100.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    told.values.trust(KEY, "source")
    await asyncio.sleep(700)
    assert told.gaps()[9:] == [240.0, 240.0]
    told.values.pause()


async def test_a_password_that_is_corrected_long_after_the_refusal_is_found_within_half_a_minute(told: Told) -> None:
    await told.found()
    told.values.doubt(KEY, "source")
    await asyncio.sleep(3600)
    told.holds("redis://:right@shop")
    await asyncio.sleep(30)

    assert (await told.found()).value == "redis://:right@shop"
    asked = len(told.reads)
    await asyncio.sleep(200)
    assert len(told.reads) == asked, "who doubted the former value has not tried this one"
    told.values.pause()


async def test_500_doubts_at_once_are_one_reading_a_second_at_most(told: Told) -> None:
    keys = [("team", f"pool-{number}") for number in range(500)]
    for key in keys:
        told.values.order(key, "source", SHOP)
    await asyncio.sleep(100)
    for key in keys:
        told.values.doubt(key, "source")
    await asyncio.sleep(0.9)

    assert len(told.reads) == 2
    told.values.pause()


async def test_who_doubts_again_and_again_has_it_read_no_more_often(told: Told) -> None:
    await told.found()
    for _ in range(600):
        told.values.doubt(KEY, "source")
        await asyncio.sleep(0.1)

    assert len(told.reads) < 10
    told.values.pause()


async def test_a_doubt_ends_with_the_pool_that_had_it(told: Told) -> None:
    await told.found()
    await told.found(OTHER)
    told.values.doubt(OTHER, "source")
    await asyncio.sleep(5)
    told.values.order(OTHER, "source", None)
    told.values.doubt(OTHER, "source")
    await asyncio.sleep(60)
    told.reads.clear()
    await asyncio.sleep(230)

    assert len(told.reads) <= 1
    told.values.pause()


async def test_who_uses_a_value_twice_may_leave_it_once(told: Told) -> None:
    await told.found()
    told.values.order(KEY, "prometheus", SHOP)
    told.values.order(KEY, "source", None)
    told.holds("new")
    await asyncio.sleep(300)

    assert told.changed == [KEY, KEY]
    assert told.values.order(KEY, "prometheus", SHOP) == SecretValue("new")
    told.values.pause()


async def test_nothing_is_read_once_the_last_pool_has_left_and_all_is_read_anew_afterwards(told: Told) -> None:
    await told.found()
    told.values.order(KEY, "source", None)
    asked = len(told.reads)
    await asyncio.sleep(1000)
    assert len(told.reads) == asked

    assert told.values.order(KEY, "source", SHOP) is None
    await settle()
    assert len(told.reads) == asked + 1
    told.values.pause()


def test_a_value_is_in_no_words() -> None:
    assert "hunter2" not in repr(SecretValue(URL))
