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


class Scene:
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
def scene() -> Scene:
    return Scene()


async def test_value_is_read_once_for_all_pools_and_each_is_notified(scene: Scene) -> None:
    keys = [("team", f"pool-{number}") for number in range(500)]
    assert [scene.values.follow(key, "source", SHOP) for key in keys] == [None] * 500
    await settle()

    assert len(scene.reads) == 1
    assert sorted(scene.changed) == sorted(keys)
    assert {scene.values.follow(key, "source", SHOP) for key in keys} == {SecretValue(URL)}
    scene.values.pause()


async def test_trusted_value_is_read_every_5_minutes_and_notified_on_change(
    scene: Scene,
) -> None:
    await scene.found()
    await asyncio.sleep(1000)
    assert set(scene.gaps()) == {300.0}
    assert len(scene.changed) == 1

    scene.set_secret("redis://:new@shop")
    await asyncio.sleep(240)
    assert (len(scene.changed), (await scene.found()).value) == (2, "redis://:new@shop")
    scene.values.pause()


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
    scene: Scene, fails: Exception | None, data: dict[str, str], reason: str, words: str
) -> None:
    scene.fails, scene.data = fails, data
    found = await scene.found()

    assert (found.value, found.reason) == ("", reason)
    assert words in found.message
    scene.values.pause()


async def test_missing_secret_is_read_with_backoff_up_to_30_seconds(scene: Scene) -> None:
    scene.fails = MISSING
    await scene.found()
    await asyncio.sleep(200)
    assert scene.gaps() == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0]

    scene.fails = None
    await asyncio.sleep(30)
    assert scene.changed == [KEY, KEY]
    assert (await scene.found()).value == URL
    scene.values.pause()


async def test_longest_wait_for_a_missing_secret_has_jitter(scene: Scene) -> None:
    scene.fails, scene.jitter = MISSING, 0.0
    await scene.found()
    await asyncio.sleep(200)

    assert scene.gaps()[-3:] == [15.0, 15.0, 15.0]
    scene.values.pause()


async def test_value_stays_while_the_api_server_fails(scene: Scene) -> None:
    await scene.found()
    for broken in (ApiUnreachableError("no answer"), ApiError(500, "InternalError", "oops"), ZeroDivisionError()):
        scene.fails = broken
        await asyncio.sleep(300)
        assert (await scene.found()).value == URL
    scene.fails = None
    scene.set_secret("redis://new")
    await asyncio.sleep(300)

    assert (await scene.found()).value == "redis://new"
    scene.values.pause()


async def test_deleted_secret_is_reported_as_missing(scene: Scene) -> None:
    await scene.found()
    scene.fails = MISSING
    await asyncio.sleep(300)

    assert (await scene.found()).reason == "SecretNotFound"
    assert len(scene.changed) == 2
    scene.values.pause()


async def test_doubted_value_is_read_at_once_and_until_it_is_trusted(scene: Scene) -> None:
    await scene.found()
    await asyncio.sleep(100)
    scene.values.source_failed(KEY, "source")
    await settle()
    assert len(scene.reads) == 2

    await asyncio.sleep(70)
    assert scene.gaps() == [100.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    scene.values.source_works(KEY, "source")
    await asyncio.sleep(700)
    assert scene.gaps()[9:] == [300.0, 300.0]
    scene.values.pause()


async def test_late_correction_of_a_doubted_value_is_found_within_30_seconds(scene: Scene) -> None:
    await scene.found()
    scene.values.source_failed(KEY, "source")
    await asyncio.sleep(3600)
    scene.set_secret("redis://:right@shop")
    await asyncio.sleep(30)

    assert (await scene.found()).value == "redis://:right@shop"
    asked = len(scene.reads)
    await asyncio.sleep(200)
    assert len(scene.reads) == asked, "the doubt concerned the former value only"
    scene.values.pause()


async def test_500_doubts_at_once_cause_at_most_one_read_a_second(scene: Scene) -> None:
    keys = [("team", f"pool-{number}") for number in range(500)]
    for key in keys:
        scene.values.follow(key, "source", SHOP)
    await asyncio.sleep(100)
    for key in keys:
        scene.values.source_failed(key, "source")
    await asyncio.sleep(0.9)

    assert len(scene.reads) == 2
    scene.values.pause()


async def test_repeated_doubts_cause_no_more_reads(scene: Scene) -> None:
    await scene.found()
    for _ in range(600):
        scene.values.source_failed(KEY, "source")
        await asyncio.sleep(0.1)

    assert len(scene.reads) < 10
    scene.values.pause()


async def test_doubt_ends_when_its_pool_leaves(scene: Scene) -> None:
    await scene.found()
    await scene.found(OTHER)
    scene.values.source_failed(OTHER, "source")
    await asyncio.sleep(5)
    scene.values.follow(OTHER, "source", None)
    scene.values.source_failed(OTHER, "source")
    await asyncio.sleep(60)
    scene.reads.clear()
    await asyncio.sleep(230)

    assert len(scene.reads) <= 1
    scene.values.pause()


async def test_pool_that_uses_a_value_twice_may_leave_one_use(scene: Scene) -> None:
    await scene.found()
    scene.values.follow(KEY, "prometheus", SHOP)
    scene.values.follow(KEY, "source", None)
    scene.set_secret("new")
    await asyncio.sleep(301)

    assert scene.changed == [KEY, KEY]
    assert scene.values.follow(KEY, "prometheus", SHOP) == SecretValue("new")
    scene.values.pause()


async def test_secret_is_not_read_after_the_last_pool_has_left(scene: Scene) -> None:
    await scene.found()
    scene.values.follow(KEY, "source", None)
    asked = len(scene.reads)
    await asyncio.sleep(1000)
    assert len(scene.reads) == asked

    assert scene.values.follow(KEY, "source", SHOP) is None
    await settle()
    assert len(scene.reads) == asked + 1
    scene.values.pause()


def test_repr_of_a_secret_value_hides_it() -> None:
    assert "hunter2" not in repr(SecretValue(URL))
