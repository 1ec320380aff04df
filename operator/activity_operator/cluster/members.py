"""Who belongs to which pool, by owner UIDs: pod -> ReplicaSet -> Deployment -> pool. Labels alone prove nothing."""

from activity_operator.cluster.kinds import DEPLOYMENTS, PODS, REPLICA_SETS, Key, Raw
from activity_operator.cluster.kube import ApiError, KubeClient
from activity_operator.cluster.observe import controller_uid
from activity_operator.cluster.store import Store, pool_key, uid_of


class Members:
    """Answers membership from the store. ReplicaSets are not watched: each is read once, when its first pod is seen."""

    def __init__(self, store: Store, kube: KubeClient) -> None:
        self._store = store
        self._kube = kube
        #: ReplicaSet UID -> UID of its Deployment, "" when it has none. UIDs are never used again, so neither changes.
        self._deployment_of: dict[str, str] = {}

    def deployments(self, key: Key, pool_uid: str) -> list[Raw]:
        """Return the Deployments that this very pool owns."""
        return [raw for raw in self._store.of_pool(DEPLOYMENTS, key) if controller_uid(raw) == pool_uid]

    async def pods(self, key: Key, pool_uid: str) -> list[Raw]:
        """Return the pods of the pool's Deployments; reads ReplicaSets that are new. Raises `KubeError`."""
        for raw in self._store.of_pool(PODS, key):
            await self._resolve(raw)
        ours = {uid_of(raw) for raw in self.deployments(key, pool_uid)}
        return [raw for raw in self._store.of_pool(PODS, key) if self._deployment_of.get(controller_uid(raw)) in ours]

    def member(self, pod_uid: str) -> Key | None:
        """Return the pool of a pod, None for a stranger or one whose owners are not known yet."""
        pod = self._store.by_uid(PODS, pod_uid)
        if pod is None:
            return None
        deployment = self._store.by_uid(DEPLOYMENTS, self._deployment_of.get(controller_uid(pod), ""))
        if deployment is None:
            return None
        key = pool_key(PODS, pod)
        pool = None if key is None else self._store.pool(key)
        return key if pool is not None and uid_of(pool) == controller_uid(deployment) else None

    async def _resolve(self, pod: Raw) -> None:
        owner = controller_uid(pod)
        if not owner or owner in self._deployment_of:
            return
        meta = pod["metadata"]
        name = next(str(ref["name"]) for ref in meta["ownerReferences"] if ref.get("uid") == owner)
        try:
            found = await self._kube.get(REPLICA_SETS, meta["namespace"], name)
        except ApiError as error:
            if not error.missing:
                raise
            # Gone before we looked: its pods are being removed with it.
            self._deployment_of[owner] = ""
            return
        self._deployment_of[owner] = controller_uid(found) if uid_of(found) == owner else ""

    def prune(self) -> None:
        """Forget ReplicaSets of which no pod is left."""
        alive = {controller_uid(raw) for key in self._store.known_keys() for raw in self._store.of_pool(PODS, key)}
        for uid in [uid for uid in self._deployment_of if uid not in alive]:
            del self._deployment_of[uid]
