"""The operator's cache of the cluster: raw objects of pools, Deployments and pods, by UID and by pool.

It is fed by the watch, the LISTs of the resync, and the answers to the operator's own writes. In any order of these, an
object never returns to an older resourceVersion, and a deleted object never reappears. The exception is a restore of
the API server's storage: resourceVersions go back, and a LIST that shows this is believed over the store.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, Key, Raw, Resource
from activity_operator.cluster.transform import trim
from activity_worker.contract import LABEL_POOL

KINDS = (POOLS, DEPLOYMENTS, PODS)
#: How many deleted UIDs are remembered with their last version: enough to outlast a LIST that is under way.
TOMBSTONES = 20_000


def is_older(version: str, than: str) -> bool:
    """Return whether `version` is older than `than`; a version that is not a number never counts as older."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def uid_of(raw: Raw) -> str:
    """Return the object's UID."""
    return str(raw["metadata"]["uid"])


def version_of(raw: Raw) -> str:
    """Return the object's resourceVersion."""
    return str(raw["metadata"].get("resourceVersion", ""))


def pool_key(resource: Resource, raw: Raw) -> Key | None:
    """Return the key of a pool, or of the pool that the object's label names; None without the label."""
    meta = raw["metadata"]
    if resource == POOLS:
        return (meta["namespace"], meta["name"])
    name = (meta.get("labels") or {}).get(LABEL_POOL)
    return (meta["namespace"], name) if name else None


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The resourceVersions of one kind before a LIST: by UID, and the newest that was ever seen."""

    versions: Mapping[str, str]
    newest: int

    def is_after(self, list_version: str) -> bool:
        """Whether the LIST is older than what was seen before it began, which only a restore of the storage explains.

        A LIST is read from the storage, so its own resourceVersion is never older than any that was seen before.
        """
        return list_version.isdigit() and int(list_version) < self.newest


class Store:
    """The last known objects. `changed(key)` is called whenever an object of a pool changes."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._objects: dict[Resource, dict[str, Raw]] = {resource: {} for resource in KINDS}
        self._names: dict[Resource, dict[Key, str]] = {resource: {} for resource in KINDS}
        self._of_pool: dict[Resource, dict[Key, set[str]]] = {resource: {} for resource in KINDS}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._newest: dict[Resource, int] = dict.fromkeys(KINDS, 0)
        self._changes = 0
        self._changed_at: dict[tuple[Resource, Key], int] = {}

    def pool(self, key: Key) -> Raw | None:
        """Return the pool of that name."""
        uid = self._names[POOLS].get(key)
        return None if uid is None else self._objects[POOLS][uid]

    def pools(self) -> dict[Key, Raw]:
        """Return all pools by key."""
        return {key: self._objects[POOLS][uid] for key, uid in self._names[POOLS].items()}

    def of_pool(self, resource: Resource, key: Key) -> list[Raw]:
        """Return the Deployments or pods that carry the pool's label, ordered by name."""
        found = (self._objects[resource][uid] for uid in self._of_pool[resource].get(key, ()))
        return sorted(found, key=lambda raw: str(raw["metadata"]["name"]))

    def changed_at(self, resource: Resource, key: Key) -> int:
        """Return a number that is another one after each change of these objects of the pool; 0 without objects."""
        return self._changed_at.get((resource, key), 0)

    def by_uid(self, resource: Resource, uid: str) -> Raw | None:
        """Return one object by UID."""
        return self._objects[resource].get(uid)

    def by_name(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        """Return one object by name."""
        uid = self._names[resource].get((namespace, name))
        return None if uid is None else self._objects[resource][uid]

    def count(self, resource: Resource) -> int:
        """Return the number of objects of a kind."""
        return len(self._objects[resource])

    def known_keys(self) -> set[Key]:
        """Return the keys of all pools with any object, including deleted pools with remaining Deployments or pods."""
        return {key for resource in KINDS for key, uids in self._of_pool[resource].items() if uids}

    def trimmed(self, resource: Resource, raw: Raw) -> Raw:
        """Return the object as the store keeps it: the stored one if that has the same version."""
        known = self._objects[resource].get(uid_of(raw))
        return known if known is not None and version_of(known) == version_of(raw) else trim(resource, raw)

    def put(self, resource: Resource, raw: Raw) -> bool:
        """Store an object from a watch, a LIST or the answer to a write; return False if it changed nothing."""
        key = pool_key(resource, raw)
        meta = raw["metadata"]
        uid, version, name = uid_of(raw), version_of(raw), (meta["namespace"], meta["name"])
        if key is None:
            return self.remove(resource, raw)
        self._note_version(resource, version)
        if uid in self._gone and not is_older(self._gone[uid], version):
            return False
        known = self._objects[resource].get(uid)
        if known is not None and (is_older(version, version_of(known)) or version == version_of(known)):
            return False
        other = self._names[resource].get(name, uid)
        if other != uid:
            # Of two UIDs with one name the newer one proves that the older object is deleted, in any order of arrival.
            if is_older(version, version_of(self._objects[resource][other])):
                return False
            self._drop(resource, other, version)
        if known is not None and pool_key(resource, known) != key:
            self._drop(resource, uid, "")
        self._objects[resource][uid] = trim(resource, raw)
        self._names[resource][name] = uid
        self._of_pool[resource].setdefault(key, set()).add(uid)
        self._gone.pop(uid, None)
        self._note_change(resource, key)
        return True

    def remove(self, resource: Resource, raw: Raw) -> bool:
        """Remove an object that is deleted or no longer selected; an event older than the stored object is ignored."""
        uid, version = uid_of(raw), version_of(raw)
        known = self._objects[resource].get(uid)
        if known is not None and is_older(version, version_of(known)):
            return False
        self._note_version(resource, version)
        return self._drop(resource, uid, version)

    def _drop(self, resource: Resource, uid: str, version: str) -> bool:
        if version:
            self._gone[uid] = version
            self._gone.move_to_end(uid)
            while len(self._gone) > TOMBSTONES:
                self._gone.popitem(last=False)
        raw = self._objects[resource].pop(uid, None)
        if raw is None:
            return False
        name = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if self._names[resource].get(name) == uid:
            del self._names[resource][name]
        key = pool_key(resource, raw)
        if key is not None:
            left = self._of_pool[resource][key]
            left.discard(uid)
            self._note_change(resource, key)
            if not left:
                del self._of_pool[resource][key]
                del self._changed_at[resource, key]
        return True

    def _note_change(self, resource: Resource, key: Key) -> None:
        self._changes += 1
        self._changed_at[resource, key] = self._changes
        self._changed(key)

    def _note_version(self, resource: Resource, version: str) -> None:
        if version.isdigit():
            self._newest[resource] = max(self._newest[resource], int(version))

    def snapshot(self, resource: Resource) -> StoreSnapshot:
        """Return the versions of a kind; take them before a LIST and pass them to `replace` afterwards."""
        versions = {uid: version_of(raw) for uid, raw in self._objects[resource].items()}
        return StoreSnapshot(versions, self._newest[resource])

    def replace(self, resource: Resource, listed: Iterable[Raw], before: StoreSnapshot, list_version: str) -> int:
        """Store a full LIST and remove objects of `before` that it lacks; return the number of removed objects.

        Objects that appeared during the LIST stay. After a restore of the storage the LIST replaces what is stored.
        """
        found = {uid_of(raw): raw for raw in listed}
        if before.is_after(list_version):
            self._forget_versions(resource, found, list_version)
        for raw in found.values():
            self.put(resource, raw)
        phantoms = [uid for uid in before.versions if uid not in found and uid in self._objects[resource]]
        for uid in phantoms:
            self._drop(resource, uid, list_version or before.versions[uid])
        self._note_version(resource, list_version)
        return len(phantoms)

    def _forget_versions(self, resource: Resource, listed: Iterable[str], list_version: str) -> None:
        """Forget the listed objects and their deletions, because versions from before the restore mean nothing now."""
        self._newest[resource] = int(list_version)
        for uid in listed:
            self._drop(resource, uid, "")
            self._gone.pop(uid, None)
