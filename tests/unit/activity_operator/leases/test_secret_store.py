"""Lease records as Secrets: written once, claimed with a precondition, read back completely."""

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from activity_operator.backlog.protocol import PollTarget
from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.resources import Raw, Raws, Resource
from activity_operator.leases.model import LeaseOwner, PoolRef, TaskLease
from activity_operator.leases.secret_store import SecretLeaseStore, lease_of
from activity_operator.leases.store import (
    FormerLeaderError,
    LeaseRecordConflictError,
    LeaseRecordRefusedError,
    LeaseStoreUnavailableError,
)
from activity_worker.contract import ScheduledActivity

LEASE = TaskLease(
    id="a" * 32,
    pool=PoolRef("media", "resize", "pool-1"),
    target=PollTarget("arn:x", "eu-west-1", "https://here", "arn:role", "external"),
    token="a secret token",
    input='{"é": 1}',
    received_at=1_700_000_000.123456,
)
OWNER = LeaseOwner("uid-a", "first")


class Api:
    """Secrets in memory with resourceVersions; `broken` is raised instead of an answer."""

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.patches: list[Raw] = []
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

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        self._check()
        if name not in self.objects:
            raise ApiError(404, "NotFound", name)
        return self.objects[name]

    async def list(self, resource: Resource, namespace: str = "", label_selector: str = "") -> tuple[Raws, str]:
        self._check()
        return list(self.objects.values()), str(self.version)

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        self._check()
        if body["metadata"]["name"] in self.objects:
            raise ApiError(409, "AlreadyExists", "")
        return self._store(body, f"uid-{self.version}")

    async def merge_patch(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        self._check()
        self.patches.append(body)
        before = await self.get(resource, namespace, name)
        known = {key: before["metadata"][key] for key in ("uid", "resourceVersion")}
        if body["metadata"] != known:
            raise ApiError(409, "Conflict", "")
        return self._store({**before, "data": before["data"] | body["data"]}, before["metadata"]["uid"])

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str, resource_version: str = "") -> None:
        self._check()
        found = self.objects.get(name, {}).get("metadata", {})
        if found and (found["uid"] != uid or resource_version not in ("", found["resourceVersion"])):
            raise ApiError(409, "Conflict", "")
        self.objects.pop(name, None)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def records(api: Api) -> SecretLeaseStore:
    return SecretLeaseStore(api, "activitypool-system")


async def test_lease_is_read_back_as_recorded(api: Api, records: SecretLeaseStore) -> None:
    stored = await records.create(LEASE)

    assert await records.list() == (stored,)
    assert (stored.token, stored.input, stored.received_at) == (LEASE.token, LEASE.input, LEASE.received_at)
    assert (stored.pool, stored.target, stored.owner) == (LEASE.pool, LEASE.target, None)
    (secret,) = api.objects.values()
    assert secret["metadata"]["name"] == "lease-" + "a" * 32
    assert secret["type"] == "activitypools.dev/lease"
    assert secret["metadata"]["labels"]["activitypools.dev/pool-uid"] == "pool-1"
    assert base64.b64decode(secret["data"]["token"]).decode() == LEASE.token


async def test_lease_of_a_task_list_keeps_its_type_and_execution(records: SecretLeaseStore) -> None:
    activity = ScheduledActivity("render-invoice", "1", "activity-7", "order-7", "run-1")
    target = PollTarget("", "eu-west-1", domain="shop", task_list="invoices")
    stored = await records.create(replace(LEASE, activity=activity, target=target))

    (read,) = await records.list()

    assert (read, read.activity, read.target) == (stored, activity, target)
    assert replace(LEASE, activity=activity).size_bytes > LEASE.size_bytes


async def test_second_create_returns_the_record_with_its_owner(records: SecretLeaseStore) -> None:
    await records.claim(await records.create(LEASE), OWNER)

    assert (await records.create(LEASE)).owner == OWNER


async def test_claim_writes_the_owner_without_the_payload(api: Api, records: SecretLeaseStore) -> None:
    large = replace(LEASE, input="x" * 262_144)

    claimed = await records.claim(await records.create(large), OWNER)

    assert len(json.dumps(api.patches)) < 300
    assert await records.list() == (claimed,)
    assert claimed.input == large.input


async def test_create_with_a_lost_answer_is_found_by_the_retry(api: Api, records: SecretLeaseStore) -> None:
    api.lose_answer = True
    with pytest.raises(LeaseStoreUnavailableError):
        await records.create(LEASE)
    api.lose_answer = False

    assert (await records.create(LEASE)).recorded


async def test_claim_on_an_outdated_record_conflicts(records: SecretLeaseStore) -> None:
    stored = await records.create(LEASE)
    await records.claim(stored, OWNER)

    with pytest.raises(LeaseRecordConflictError):
        await records.claim(stored, LeaseOwner("uid-b", "first"))
    found = await records.read(LEASE.id)
    assert found is not None
    assert found.owner == OWNER


async def test_former_leader_writes_no_owner(api: Api) -> None:
    """A process may be stopped between a worker's claim and the write; the worker then asks the next leader."""
    leads = True
    records = SecretLeaseStore(api, "activitypool-system", lambda: leads)
    stored = await records.create(LEASE)
    leads = False
    with pytest.raises(LeaseStoreUnavailableError):
        await records.claim(stored, OWNER)

    assert (await records.list())[0].owner is None


async def test_former_leader_removes_no_record_but_its_own(api: Api) -> None:
    """The worker of a claimed lease, or the next leader, still needs the record."""
    leads = True
    records = SecretLeaseStore(api, "activitypool-system", lambda: leads)
    stored = await records.create(LEASE)
    claimed = await records.claim(stored, OWNER)
    leads = False

    with pytest.raises(FormerLeaderError):
        await records.delete(claimed)
    await records.withdraw(claimed)
    await records.withdraw(stored)
    assert await records.list() == (claimed,)

    other = await records.create(replace(LEASE, id="b" * 32))
    await records.withdraw(other)
    assert await records.list() == (claimed,)


async def test_claim_on_a_deleted_record_conflicts(records: SecretLeaseStore) -> None:
    stored = await records.create(LEASE)
    await records.delete(stored)
    await records.delete(stored)

    with pytest.raises(LeaseRecordConflictError):
        await records.claim(stored, OWNER)
    assert await records.read(LEASE.id) is None


async def test_refused_deletion_of_a_record_succeeds_at_the_retry(api: Api, records: SecretLeaseStore) -> None:
    """A 409 does not prove that the record was replaced: a webhook may answer with it, too."""
    stored = await records.create(LEASE)

    async def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(409, "Conflict", "not now")

    remove, api.delete = api.delete, refuse  # type: ignore[method-assign]
    with pytest.raises(LeaseStoreUnavailableError):
        await records.delete(stored)
    api.delete = remove  # type: ignore[method-assign]
    await records.delete(stored)

    assert await records.list() == ()


async def test_object_that_replaced_a_record_is_not_deleted(api: Api, records: SecretLeaseStore) -> None:
    stored = await records.create(LEASE)
    name = "lease-" + LEASE.id
    api.objects[name] = {"metadata": {"name": name, "uid": "another"}, "type": "Opaque"}

    await records.delete(stored)

    assert name in api.objects


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_record_that_the_api_server_refuses_for_good_is_no_outage(
    api: Api, records: SecretLeaseStore, status: int
) -> None:
    api.broken = ApiError(status, "Invalid", "data: Too long")

    with pytest.raises(LeaseRecordRefusedError, match=f"{status} Invalid"):
        await records.create(LEASE)


async def test_payload_with_a_lone_surrogate_is_read_back(records: SecretLeaseStore) -> None:
    stored = await records.create(replace(LEASE, input='{"name": "\ud800"}'))

    assert await records.list() == (stored,)
    assert stored.input == '{"name": "\ud800"}'


@pytest.mark.parametrize("error", [ApiUnreachableError("no answer"), ApiError(500, "InternalError", "etcd")])
async def test_api_server_errors_are_raised_as_unavailable_records(
    api: Api, records: SecretLeaseStore, error: Exception
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
        with pytest.raises(LeaseStoreUnavailableError):
            await call


async def test_secrets_that_are_not_records_are_skipped(api: Api, records: SecretLeaseStore) -> None:
    await records.create(LEASE)
    api.objects["foreign"] = {"type": "Opaque", "metadata": {"name": "foreign"}, "data": {}}
    encoded = {key: base64.b64encode(b"[]").decode() for key in ("token", "input", "receivedAt", "pool", "target")}
    api.objects["odd"] = {"type": "activitypools.dev/lease", "metadata": {"name": "lease-o"}, "data": encoded}
    api.objects["empty"] = {"type": "activitypools.dev/lease", "metadata": {"name": "lease-e"}, "data": None}
    api.objects["broken"] = {"type": "activitypools.dev/lease", "metadata": {"name": "lease-b"}, "data": {"token": "!"}}

    assert len(await records.list()) == 1
    assert lease_of(api.objects["broken"]) is None


def test_repr_of_a_lease_hides_token_and_input() -> None:
    assert LEASE.token not in repr(LEASE)
    assert LEASE.input not in repr(LEASE)
