"""Lease records as Secrets in the operator's own namespace: users of a pool's namespace must not read task tokens."""

import base64
import json
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from activity_operator.backlog.protocol import PollTarget
from activity_operator.cluster import fence
from activity_operator.cluster.kube import ApiError, KubeError
from activity_operator.cluster.resources import SECRETS, Raw, Raws, Resource
from activity_operator.leases.model import LeaseOwner, PoolRef, TaskLease, decoded, encoded
from activity_operator.leases.store import (
    FormerLeaderError,
    LeaseRecordConflictError,
    LeaseRecordRefusedError,
    LeaseStoreUnavailableError,
)
from activity_worker.contract import GROUP, ScheduledActivity

SECRET_TYPE = f"{GROUP}/lease"
NAME_PREFIX = "lease-"
LABEL_RECORD = f"{GROUP}/record"
LABEL_NAMESPACE = f"{GROUP}/pool-namespace"
LABEL_NAME = f"{GROUP}/pool-name"
LABEL_UID = f"{GROUP}/pool-uid"
#: Answers that no further try can change: malformed, too large for a request, too large for a Secret (1 MiB).
_REFUSED = frozenset({400, 413, 422})
SELECTOR = f"{LABEL_RECORD}=lease"

T = TypeVar("T")


class Secrets(Protocol):
    """The methods of `KubeClient` that the store uses."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        """Read one object."""
        ...

    async def list(self, resource: Resource, namespace: str = "", label_selector: str = "") -> tuple[Raws, str]:
        """List objects."""
        ...

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """Create one object."""
        ...

    async def merge_patch(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """Change fields of one object."""
        ...

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str, resource_version: str = "") -> None:
        """Delete one object."""
        ...


class SecretLeaseStore:
    """A `LeaseStore` over the Kubernetes API. `namespace` is the operator's own.

    `leads` is called right before an owner is written or a record is removed (default: True): the process may have lost
    its leadership since it received the claim, for example while it was suspended.
    """

    def __init__(self, kube: Secrets, namespace: str, leads: Callable[[], bool] = lambda: True) -> None:
        self._kube = kube
        self._namespace = namespace
        self._leads = leads

    async def create(self, lease: TaskLease) -> TaskLease:
        """Record the lease and return it as recorded. If a record exists already, return that one.

        Raises `LeaseRecordRefusedError` if no further try can succeed.
        """
        try:
            stored = await _reachable(self._kube.create(SECRETS, self._namespace, _secret(lease)))
            return _with_identity(lease, stored)
        except ApiError as error:
            if error.status in _REFUSED:
                raise LeaseRecordRefusedError(f"{error.status} {error.reason}") from error
            if not error.conflict:
                raise _unavailable(error) from error
        found = await self.read(lease.id)
        if found is None:
            raise LeaseStoreUnavailableError(f"the record of lease {lease.id} came and went")
        return found

    async def claim(self, lease: TaskLease, owner: LeaseOwner) -> TaskLease:
        """Write the owner if the record is unchanged and this process still leads. The payload is not sent again."""
        body = {
            "metadata": {"uid": lease.record_uid, "resourceVersion": lease.record_version},
            "data": _encoded({"owner": json.dumps({"podUid": owner.pod_uid, "incarnation": owner.incarnation})}),
        }
        try:
            with self._only_as_leader():
                stored = await _reachable(
                    self._kube.merge_patch(SECRETS, self._namespace, NAME_PREFIX + lease.id, body)
                )
            return replace(_with_identity(lease, stored), owner=owner)
        except ApiError as error:
            if error.conflict or error.missing:
                raise LeaseRecordConflictError(lease.id) from error
            raise _unavailable(error) from error

    async def read(self, lease_id: str) -> TaskLease | None:
        """Return the lease as it is recorded now, None if there is no record."""
        try:
            return _lease(await _reachable(self._kube.get(SECRETS, self._namespace, NAME_PREFIX + lease_id)))
        except ApiError as error:
            if error.missing:
                return None
            raise _unavailable(error) from error

    async def delete(self, lease: TaskLease) -> None:
        """Remove the record if this process still leads. A Secret of the same name with another UID is left alone."""
        with self._only_as_leader():
            await self._delete(lease)

    async def withdraw(self, lease: TaskLease) -> None:
        """Remove the record if it is as this process created it: no owner, and the same resourceVersion."""
        if lease.owner is None:
            await self._delete(lease, lease.record_version)

    async def _delete(self, lease: TaskLease, version: str = "") -> None:
        name = NAME_PREFIX + lease.id
        try:
            await _reachable(self._kube.delete(SECRETS, self._namespace, name, lease.record_uid, version))
        except ApiError as error:
            if error.missing or (error.conflict and not await self._is(name, lease.record_uid, version)):
                return
            raise _unavailable(error) from error

    async def _is(self, name: str, uid: str, version: str) -> bool:
        """Whether the Secret of that name has this UID and version. A conflict (409) may also come from a webhook."""
        try:
            found = await _reachable(self._kube.get(SECRETS, self._namespace, name))
        except ApiError as error:
            if error.missing:
                return False
            raise _unavailable(error) from error
        meta = found["metadata"]
        return bool(meta["uid"] == uid and version in ("", meta["resourceVersion"]))

    @contextmanager
    def _only_as_leader(self) -> Iterator[None]:
        """Raise `FormerLeaderError` if this process leads no more, at the latest before the call's first byte."""
        self._must_lead()
        with fence.checked_before_send(self._must_lead):
            yield

    def _must_lead(self) -> None:
        if not self._leads():
            raise FormerLeaderError("this process leads no more")

    async def list(self) -> tuple[TaskLease, ...]:
        """Return every recorded lease, without Secrets that have our label and are no lease record."""
        try:
            found, _ = await _reachable(self._kube.list(SECRETS, self._namespace, label_selector=SELECTOR))
        except ApiError as error:
            raise _unavailable(error) from error
        return tuple(lease for raw in found if (lease := lease_of(raw)) is not None)


def lease_of(raw: Raw) -> TaskLease | None:
    """Return the lease in a Secret; None if the Secret is no lease record of this version."""
    if raw.get("type") != SECRET_TYPE:
        return None
    try:
        return _lease(raw)
    except (AttributeError, KeyError, TypeError, ValueError, Base64Error):
        return None


async def _reachable(call: Awaitable[T]) -> T:
    try:
        return await call
    except ApiError:
        raise
    except (KubeError, TimeoutError) as error:
        raise LeaseStoreUnavailableError(str(error)) from error


def _unavailable(error: ApiError) -> LeaseStoreUnavailableError:
    return LeaseStoreUnavailableError(str(error))


def _with_identity(lease: TaskLease, stored: Raw) -> TaskLease:
    """Return the lease with the identity of its record. The payload in the answer is not decoded: it is in memory."""
    meta = stored["metadata"]
    return replace(lease, record_uid=meta["uid"], record_version=meta["resourceVersion"])


def _encoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(encoded(value)).decode() for key, value in data.items()}


def _secret(lease: TaskLease) -> Raw:
    data = {
        "token": lease.token,
        "input": lease.input,
        "receivedAt": repr(lease.received_at),
        "pool": json.dumps({"namespace": lease.pool.namespace, "name": lease.pool.name, "uid": lease.pool.uid}),
        "target": json.dumps(lease.target.to_data()),
    }
    if lease.activity is not None:
        data["activity"] = json.dumps(lease.activity.to_wire())
    labels = {
        LABEL_RECORD: "lease",
        LABEL_NAMESPACE: lease.pool.namespace,
        LABEL_NAME: lease.pool.name,
        LABEL_UID: lease.pool.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME_PREFIX + lease.id, "labels": labels},
        "type": SECRET_TYPE,
        "data": _encoded(data),
    }


def _lease(raw: Raw) -> TaskLease:
    """Return the lease in a Secret; raises one of the errors that `lease_of` catches if it is no lease record."""
    data = {key: decoded(base64.b64decode(value)) for key, value in raw["data"].items()}
    pool: dict[str, Any] = json.loads(data["pool"])
    owner: dict[str, Any] | None = json.loads(data["owner"]) if "owner" in data else None
    activity = ScheduledActivity.from_wire(json.loads(data["activity"])) if "activity" in data else None
    meta = raw["metadata"]
    return TaskLease(
        activity=activity,
        id=meta["name"].removeprefix(NAME_PREFIX),
        pool=PoolRef(pool["namespace"], pool["name"], pool["uid"]),
        target=PollTarget.from_data(json.loads(data["target"])),
        token=data["token"],
        input=data["input"],
        received_at=float(data["receivedAt"]),
        owner=None if owner is None else LeaseOwner(owner["podUid"], owner["incarnation"]),
        record_uid=meta["uid"],
        record_version=meta["resourceVersion"],
    )
