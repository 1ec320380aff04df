"""Replicas share one set of certificates, also when they start at the same time."""

import asyncio
import copy
import os
from pathlib import Path

import pytest

from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.resources import CONFIG_MAPS, Raw, Resource
from activity_operator.reports.certificate_manager import BUNDLE_KEY, LOOK_SECONDS, SECRET_NAME, CertificateManager
from activity_operator.reports.certificates import AUTHORITY_SECONDS, DAY_SECONDS, report_names

NAMES = report_names("activity-operator-reports", "activitypool-system")
NOW = 1_700_000_000.0


class Api:
    """The Secrets of one namespace, and the published bundle of each namespace."""

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.bundles: dict[str, Raw] = {}
        self.reads: list[str] = []
        self.forbidden = False
        self.applied: list[tuple[str, Raw]] = []
        self.version = 0
        self.down = 0

    def _keep(self, name: str, body: Raw) -> Raw:
        self.version += 1
        kept = copy.deepcopy(body)
        kept["metadata"]["resourceVersion"] = str(self.version)
        self.objects[name] = kept
        return kept

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        await asyncio.sleep(0.01)
        if self.down:
            self.down -= 1
            raise ApiUnreachableError("no answer")
        if resource is CONFIG_MAPS:
            self.reads.append(namespace)
            if self.forbidden:
                raise ApiError(403, "Forbidden", name)
            if namespace not in self.bundles:
                raise ApiError(404, "NotFound", name)
            return self.bundles[namespace]
        if name not in self.objects:
            raise ApiError(404, "NotFound", name)
        return self.objects[name]

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        await asyncio.sleep(0.01)
        if body["metadata"]["name"] in self.objects:
            raise ApiError(409, "AlreadyExists", "")
        return self._keep(body["metadata"]["name"], body)

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Raw, timeout: float | None = None
    ) -> Raw:
        await asyncio.sleep(0.01)
        if self.objects[name]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "")
        return self._keep(name, body)

    async def apply(
        self, resource: Resource, namespace: str, name: str, body: Raw, *, subresource: str = "", dry_run: bool = False
    ) -> Raw:
        await asyncio.sleep(0.01)
        self.applied.append((namespace, body))
        self.bundles[namespace] = copy.deepcopy(body)
        return body

    @property
    def written(self) -> list[str]:
        """Return the namespaces to which a bundle was written, in order."""
        return [namespace for namespace, _ in self.applied]


class Replica:
    """A certificate keeper with a clock that a test sets."""

    def __init__(self, api: Api, directory: Path) -> None:
        self.now = NOW
        self.bundles: list[str] = []
        self.keeper = CertificateManager(
            api,
            "activitypool-system",
            NAMES,
            now=lambda: self.now,
            on_bundle=lambda: self.bundles.append(self.keeper.bundle),
            directory=directory,
        )


@pytest.fixture
def api() -> Api:
    return Api()


async def test_replicas_that_start_together_share_one_bundle(api: Api, tmp_path: Path) -> None:
    one, two = Replica(api, tmp_path), Replica(api, tmp_path)
    await asyncio.gather(one.keeper.ensure(), two.keeper.ensure())

    assert one.keeper.bundle == two.keeper.bundle != ""
    assert len(api.objects) == 1


async def test_no_key_is_left_on_disk(api: Api, tmp_path: Path) -> None:
    await Replica(api, tmp_path).keeper.ensure()

    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a blocking call is harmless here


async def test_valid_certificates_are_not_written_again(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    for _ in range(3):
        await replica.keeper.ensure()

    assert api.version == 1
    assert len(replica.bundles) == 1


async def test_new_authority_is_in_the_bundle_a_day_before_it_is_used(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    await replica.keeper.publish("media")
    first = replica.keeper.bundle
    replica.now = NOW + AUTHORITY_SECONDS * 0.7
    await replica.keeper.ensure()
    assert replica.keeper.bundle.startswith(first)
    assert len(replica.bundles) == 2
    await replica.keeper.publish("media")
    replica.now += DAY_SECONDS
    await replica.keeper.ensure()

    assert first in replica.keeper.bundle
    assert [len(body["data"]["ca.crt"]) > 0 for _, body in api.applied] == [True, True]


async def test_bundle_is_published_once_per_namespace(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    await replica.keeper.publish("media")
    await replica.keeper.ensure()
    for namespace in ("media", "media", "books", "media"):
        await replica.keeper.publish(namespace)

    assert api.written == api.reads == ["media", "books"]


async def test_concurrent_pools_of_a_namespace_cost_one_read_and_one_write(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    await asyncio.gather(*(replica.keeper.publish("media") for _ in range(5)))

    assert api.written == api.reads == ["media"]


async def test_new_leader_does_not_rewrite_an_equal_bundle(api: Api, tmp_path: Path) -> None:
    first, second = Replica(api, tmp_path), Replica(api, tmp_path)
    await first.keeper.ensure()
    await second.keeper.ensure()
    for leader in (first, second, first):
        leader.keeper.forget()
        await leader.keeper.publish("media")

    assert api.written == ["media"]
    assert api.reads == ["media"] * 3


async def test_new_leader_overwrites_a_changed_bundle(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    await replica.keeper.publish("media")
    for data in ({BUNDLE_KEY: "another authority"}, {}, None):
        api.bundles["media"]["data"] = data
        replica.keeper.forget()
        await replica.keeper.publish("media")

        assert api.bundles["media"]["data"] == {BUNDLE_KEY: replica.keeper.bundle}


async def test_deleted_bundle_is_published_again_at_the_next_look(api: Api, tmp_path: Path) -> None:
    """A namespace that is deleted and created again under the same name has lost its bundle."""
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    await replica.keeper.publish("media")
    api.bundles.clear()
    replica.now += LOOK_SECONDS - 1
    await replica.keeper.publish("media")
    assert api.reads == ["media"]

    replica.now += 1
    for _ in range(2):
        await replica.keeper.publish("media")
    assert api.written == ["media", "media"]


async def test_operator_without_read_access_writes_the_bundle(api: Api, tmp_path: Path) -> None:
    """During an upgrade the operator may start before it gets its new rights."""
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    api.forbidden = True
    for _ in range(2):
        await replica.keeper.publish("media")

    assert api.written == ["media"]


async def test_failed_read_does_not_count_as_published(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    api.down = 1
    with pytest.raises(ApiUnreachableError):
        await replica.keeper.publish("media")
    await replica.keeper.publish("media")

    assert api.written == ["media"]


async def test_deleted_secret_is_written_again_unchanged(api: Api, tmp_path: Path) -> None:
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()
    before = api.objects.pop(SECRET_NAME)
    await replica.keeper.ensure()

    assert api.objects[SECRET_NAME]["data"] == before["data"]


@pytest.mark.parametrize("data", [{"ca.crt": "eA==", "ca.key": "eA=="}, {"ca.crt": "x"}, {"rotation": "eA=="}], ids=str)
async def test_unreadable_secret_is_replaced(api: Api, tmp_path: Path, data: dict[str, str]) -> None:
    api._keep(SECRET_NAME, {"metadata": {"name": SECRET_NAME}, "data": data})
    replica = Replica(api, tmp_path)
    await replica.keeper.ensure()

    assert "BEGIN CERTIFICATE" in replica.keeper.bundle


async def test_keeper_waits_for_an_unavailable_api_server(api: Api, tmp_path: Path) -> None:
    api.down = 20
    replica = Replica(api, tmp_path)
    await replica.keeper.ensured()

    assert replica.keeper.bundle
