"""Lease records as Secrets: written once, claimed under a condition, read back whole."""

import base64
import copy
from typing import Any

import pytest

from activity_operator.backlog.protocol import PollTarget
from activity_operator.cluster.kinds import Kind, Raw, Raws
from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.lease_records import LeaseSecrets, lease_of
from activity_operator.workers.leases import (
    Lease,
    Owner,
    PoolRef,
    RecordConflictError,
    RecordsUnavailableError,
)

LEASE = Lease(
    id="a" * 32,
    pool=PoolRef("media", "resize", "pool-1"),
    target=PollTarget("arn:x", "eu-west-1", "https://here", "arn:role", "external"),
    token="a secret token",
    input='{"é": 1}',
    received_at=1_700_000_000.123456,
)
OWNER = Owner("uid-a", "first")


class Api:
    """Secrets in memory, with resourceVersions; `broken` is raised instead of an answer."""

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.version = 0
        self.broken: Exception | None = None
        self.lose_answer = False

    def _store(self, body: Raw, uid: str) -> Raw:
        self.version += 1
        kept = copy.deepcopy(body)
        kept["metadata"] |= {"uid": uid, "resourceVersion": str(self.version)}
        self.objects[body["metadata"]["name"]] = kept
        if self.lose_answer:
            raise ApiUnreachableError("no answer")
        return kept

    def _check(self) -> None:
        if self.broken:
            raise self.broken

    async def get(self, kind: Kind, namespace: str, name: str) -> Raw:
        self._check()
        if name not in self.objects:
            raise ApiError(404, "NotFound", name)
        return self.objects[name]

    async def list(self, kind: Kind, namespace: str = "", label_selector: str = "") -> tuple[Raws, str]:
        self._check()
        return list(self.objects.values()), str(self.version)

    async def create(self, kind: Kind, namespace: str, body: Raw) -> Raw:
        self._check()
        if body["metadata"]["name"] in self.objects:
            raise ApiError(409, "AlreadyExists", "")
        return self._store(body, f"uid-{self.version}")

    async def replace(self, kind: Kind, namespace: str, name: str, body: Raw, timeout: float | None = None) -> Raw:
        self._check()
        before = await self.get(kind, namespace, name)
        if before["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "")
        return self._store(body, before["metadata"]["uid"])

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, resource_version: str = "") -> None:
        self._check()
        if name in self.objects and self.objects[name]["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", "")
        self.objects.pop(name, None)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def records(api: Api) -> LeaseSecrets:
    return LeaseSecrets(api, "activitypool-system")


async def test_a_lease_is_read_back_as_it_was_recorded(api: Api, records: LeaseSecrets) -> None:
    stored = await records.create(LEASE)

    assert await records.list() == (stored,)
    assert (stored.token, stored.input, stored.received_at) == (LEASE.token, LEASE.input, LEASE.received_at)
    assert (stored.pool, stored.target, stored.owner) == (LEASE.pool, LEASE.target, None)
    (secret,) = api.objects.values()
    assert secret["metadata"]["name"] == "lease-" + "a" * 32
    assert secret["type"] == "activitypools.dev/lease"
    assert secret["metadata"]["labels"]["activitypools.dev/pool-uid"] == "pool-1"
    assert base64.b64decode(secret["data"]["token"]).decode() == LEASE.token


async def test_recording_twice_returns_what_is_there_with_its_owner(records: LeaseSecrets) -> None:
    await records.claim(await records.create(LEASE), OWNER)

    assert (await records.create(LEASE)).owner == OWNER


async def test_a_write_whose_answer_was_lost_is_found_by_the_next_try(api: Api, records: LeaseSecrets) -> None:
    api.lose_answer = True
    with pytest.raises(RecordsUnavailableError):
        await records.create(LEASE)
    api.lose_answer = False

    assert (await records.create(LEASE)).recorded


async def test_a_claim_on_an_old_reading_conflicts(records: LeaseSecrets) -> None:
    stored = await records.create(LEASE)
    await records.claim(stored, OWNER)

    with pytest.raises(RecordConflictError):
        await records.claim(stored, Owner("uid-b", "first"))
    found = await records.read(LEASE.id)
    assert found is not None
    assert found.owner == OWNER


async def test_a_process_that_leads_no_more_writes_no_owner(api: Api) -> None:
    """It was stopped between a worker's claim and the write; who asks again asks the next leader."""
    leads = True
    records = LeaseSecrets(api, "activitypool-system", lambda: leads)
    stored = await records.create(LEASE)
    leads = False
    with pytest.raises(RecordsUnavailableError):
        await records.claim(stored, OWNER)

    assert (await records.list())[0].owner is None


async def test_a_claim_on_a_record_that_is_gone_conflicts(records: LeaseSecrets) -> None:
    stored = await records.create(LEASE)
    await records.delete(stored)
    await records.delete(stored)

    with pytest.raises(RecordConflictError):
        await records.claim(stored, OWNER)
    assert await records.read(LEASE.id) is None


async def test_a_record_whose_removal_is_refused_while_it_is_there_is_removed_by_the_next_try(
    api: Api, records: LeaseSecrets
) -> None:
    """A 409 need not mean that the record is another's: a webhook answers so, too."""
    stored = await records.create(LEASE)

    async def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(409, "Conflict", "not now")

    remove, api.delete = api.delete, refuse  # type: ignore[method-assign]
    with pytest.raises(RecordsUnavailableError):
        await records.delete(stored)
    api.delete = remove  # type: ignore[method-assign]
    await records.delete(stored)

    assert await records.list() == ()


async def test_a_record_that_another_object_has_replaced_is_left_alone(api: Api, records: LeaseSecrets) -> None:
    stored = await records.create(LEASE)
    name = "lease-" + LEASE.id
    api.objects[name] = {"metadata": {"name": name, "uid": "another"}, "type": "Opaque"}

    await records.delete(stored)

    assert name in api.objects


@pytest.mark.parametrize("error", [ApiUnreachableError("no answer"), ApiError(500, "InternalError", "etcd")])
async def test_trouble_with_the_api_server_is_unavailability_everywhere(
    api: Api, records: LeaseSecrets, error: Exception
) -> None:
    stored = await records.create(LEASE)
    api.broken = error
    calls: list[Any] = [
        records.create(LEASE),
        records.claim(stored, OWNER),
        records.read(LEASE.id),
        records.delete(stored),
        records.list(),
    ]

    for call in calls:
        with pytest.raises(RecordsUnavailableError):
            await call


async def test_secrets_that_are_no_records_are_passed_over(api: Api, records: LeaseSecrets) -> None:
    await records.create(LEASE)
    api.objects["foreign"] = {"type": "Opaque", "metadata": {"name": "foreign"}, "data": {}}
    api.objects["broken"] = {"type": "activitypools.dev/lease", "metadata": {"name": "lease-b"}, "data": {"token": "!"}}

    assert len(await records.list()) == 1
    assert lease_of(api.objects["broken"]) is None


def test_a_lease_shows_neither_token_nor_input() -> None:
    assert LEASE.token not in repr(LEASE)
    assert LEASE.input not in repr(LEASE)
