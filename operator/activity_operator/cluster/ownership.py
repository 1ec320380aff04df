"""Finds the pool of a pod by owner UIDs: pod -> ReplicaSet -> Deployment -> pool. Labels alone prove nothing."""

from dataclasses import dataclass

from activity_operator.cluster.facts import controller_uid
from activity_operator.cluster.kube import ApiError, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Key, Raw
from activity_operator.cluster.store import Store, pool_key, uid_of

#: Namespace, name and UID of a ReplicaSet, as a pod's ownerReferences name it.
_Owner = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _OwnedPods:
    """The pods of a pool as they were found last: valid until a pod or the pool's set of Deployments changes."""

    changed_at: int
    deployments: frozenset[str]
    owned: tuple[Raw, ...]
    #: Every pod with the pool's label by UID, as it was stored, and the UID of its Deployment.
    seen: dict[str, tuple[Raw, str]]


class Ownership:
    """Finds owners in the store. ReplicaSets are not watched: each is read once, when its first pod appears."""

    def __init__(self, store: Store, kube: KubeClient) -> None:
        self._store = store
        self._kube = kube
        #: ReplicaSet -> UID of its Deployment, "" without one. UIDs are never reused, so an entry stays valid.
        self._deployment_of: dict[_Owner, str] = {}
        self._pods: dict[Key, _OwnedPods] = {}

    def deployments(self, key: Key, pool_uid: str) -> list[Raw]:
        """Return the Deployments that the pool with this UID owns."""
        return [raw for raw in self._store.of_pool(DEPLOYMENTS, key) if controller_uid(raw) == pool_uid]

    async def pods(self, key: Key, pool_uid: str) -> tuple[Raw, ...]:
        """Return the pods of the pool's Deployments; reads unknown ReplicaSets by API calls. Raises `KubeError`.

        The same tuple is returned until a pod changes, so a caller can tell that nothing has changed.
        """
        known = self._pods.get(key)
        seen: dict[str, tuple[Raw, str]] = {} if known is None else known.seen
        changed_at = self._store.changed_at(PODS, key)
        while known is None or known.changed_at != changed_at:
            seen = {uid_of(raw): await self._resolved(raw, seen) for raw in self._store.of_pool(PODS, key)}
            if (now := self._store.changed_at(PODS, key)) == changed_at:
                break
            # A pod has changed while a ReplicaSet was read.
            changed_at = now
        ours = frozenset(uid_of(raw) for raw in self.deployments(key, pool_uid))
        if known is not None and known.changed_at == changed_at and known.deployments == ours:
            return known.owned
        if not seen:
            self._pods.pop(key, None)
            return ()
        owned = tuple(raw for raw, deployment in seen.values() if deployment in ours)
        self._pods[key] = _OwnedPods(changed_at, ours, owned, seen)
        return owned

    async def _resolved(self, pod: Raw, seen: dict[str, tuple[Raw, str]]) -> tuple[Raw, str]:
        """Return the pod and the UID of its Deployment, "" without one; an unchanged pod is taken from `seen`."""
        known = seen.get(uid_of(pod))
        if known is not None and known[0] is pod:
            return known
        await self._resolve(pod)
        return pod, self._deployment_of.get(_owner(pod), "")

    def pool_of(self, pod_uid: str) -> Key | None:
        """Return the pool of a pod; None for a foreign pod, and while the pod's owners are unknown."""
        pod = self._store.by_uid(PODS, pod_uid)
        if pod is None:
            return None
        deployment = self._store.by_uid(DEPLOYMENTS, self._deployment_of.get(_owner(pod), ""))
        if deployment is None:
            return None
        key = pool_key(PODS, pod)
        pool = None if key is None else self._store.pool(key)
        return key if pool is not None and uid_of(pool) == controller_uid(deployment) else None

    async def _resolve(self, pod: Raw) -> None:
        owner = _owner(pod)
        namespace, name, uid = owner
        if not uid or owner in self._deployment_of:
            return
        try:
            found = await self._kube.get(REPLICA_SETS, namespace, name)
        except ApiError as error:
            if not error.missing:
                raise
            # The ReplicaSet is deleted, so its pods are being deleted, too.
            self._deployment_of[owner] = ""
            return
        # The pod's creator wrote this name, and it may lead to another object or a list: compare the UID.
        self._deployment_of[owner] = controller_uid(found) if found["metadata"].get("uid") == uid else ""

    def prune(self) -> None:
        """Forget ReplicaSets without pods, and pools without pods."""
        keys = self._store.known_keys()
        alive = {_owner(raw) for key in keys for raw in self._store.of_pool(PODS, key)}
        for key in [key for key in self._pods if not self._store.changed_at(PODS, key)]:
            del self._pods[key]
        for owner in [owner for owner in self._deployment_of if owner not in alive]:
            del self._deployment_of[owner]


def _owner(pod: Raw) -> _Owner:
    """Return namespace, name and UID of the pod's controlling owner; UID "" without one.

    The cache needs all three. Otherwise a pod could name the UID of another namespace's ReplicaSet, and the operator
    would store for that UID that it has no Deployment.
    """
    meta = pod["metadata"]
    uid = controller_uid(pod)
    name = next((str(ref["name"]) for ref in meta.get("ownerReferences") or () if str(ref.get("uid")) == uid), "")
    return (meta["namespace"], name, uid)
