"""Carries out a decision: one API call per action, only with the Lease, and only on objects that did not change."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from activity_operator.api.pod_own import DELETION_COST
from activity_operator.cluster import field_managers
from activity_operator.cluster.drift import drifted_fields, fingerprint, stamped, stamped_as_applied
from activity_operator.cluster.edit_conflicts import EditConflicts
from activity_operator.cluster.facts import controller_uid
from activity_operator.cluster.interfaces import Leader, WatchCheck
from activity_operator.cluster.kube import ApiError, KubeClient, KubeError
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, Key, Raw, Resource
from activity_operator.cluster.status_writer import NameTakenError
from activity_operator.cluster.store import Store, version_of
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    DeleteDeployment,
    DeletePod,
    EmitEvent,
    SetDeletionCost,
    SetReplicas,
)

#: Seconds after a raise in which further raises are combined into one write.
COALESCE_SECONDS = 0.25
#: Seconds until a refused manifest is tried again; a different manifest is tried at once.
REJECTED_SECONDS = 60.0

log = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """The Lease was lost before a write; the decision is void."""


def must_lead(leader: Leader) -> None:
    """Raise `NotLeadingError` unless this process leads."""
    if not leader.leading:
        raise NotLeadingError("the Lease is not ours")


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal of a revision's Deployment by the API server.

    `reason` is the condition's reason, `fingerprint` the manifest's, `at` seconds of the clock.
    """

    reason: str
    message: str
    fingerprint: str
    at: float


@dataclass(slots=True)
class Work:
    """The actions of one decision for one pool: what they need, what they must not do yet, and their result.

    `replicas` are the replicas last written, by Deployment; a write with an unknown result removes its entry.
    `last_raise` is when replicas were last raised (seconds of the clock). `defer_until` is when a deferred write may be
    sent: a raise, or a write to a Deployment that another field manager edits, too (`edit_conflicts`).
    """

    key: Key
    pool: Raw
    replicas: dict[str, int] = field(default_factory=dict)
    edit_conflicts: EditConflicts = field(default_factory=EditConflicts)
    last_raise: float = float("-inf")
    defer_until: float | None = None
    rejected: Rejection | None = None
    writes: int = 0
    scaled: int = 0


class Applier:
    """Turns actions into API calls and puts the answers into the store, so that the next decision sees them.

    Raises `NotLeadingError`, `NameTakenError`, and `KubeError` (a conflict requires a new observation).
    """

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        watch_check: WatchCheck,
        leader: Leader,
        *,
        clock: Callable[[], float],
        emit_event: Callable[[Raw, EmitEvent], None],
    ) -> None:
        self._kube = kube
        self._store = store
        self._watch_check = watch_check
        self._leader = leader
        self._clock = clock
        self._emit_event = emit_event

    async def apply(self, work: Work, actions: tuple[Action, ...]) -> None:
        """Carry out the actions in order, up to the first failure."""
        for action in actions:
            if isinstance(action, EmitEvent):
                self._emit_event(work.pool, action)
        for action in actions:
            if not isinstance(action, EmitEvent):
                await self._apply_one(work, action)

    async def _apply_one(self, work: Work, action: Action) -> None:
        try:
            await self._dispatch(work, action)
        except ApiError as error:
            if error.conflict and isinstance(action, ApplyRevision | SetReplicas):
                await self.refresh(DEPLOYMENTS, work.key[0], action.name)
            raise

    async def refresh(self, resource: Resource, namespace: str, name: str) -> None:
        """Read an object after a conflict: its watch event may be lost, and the next resync may be minutes away."""
        with suppress(KubeError):
            self._store.put(resource, await self._kube.get(resource, namespace, name))

    async def _dispatch(self, work: Work, action: Action) -> None:
        namespace = work.key[0]
        match action:
            case ApplyRevision():
                await self._apply_revision(work, action)
            case SetReplicas():
                await self._set_replicas(work, action)
            case SetDeletionCost():
                await self._set_deletion_cost(work, action)
            case DeleteDeployment():
                work.replicas.pop(action.name, None)
                live = self._store.by_uid(DEPLOYMENTS, action.uid)
                version = "" if live is None else version_of(live)
                await self._delete(DEPLOYMENTS, namespace, action.name, action.uid, work, version)
            case DeletePod():
                await self._delete(PODS, namespace, action.pod, action.uid, work)

    def _written(self, resource: Resource, raw: Raw, work: Work) -> None:
        work.writes += 1
        self._watch_check.wrote(resource, raw)
        self._store.put(resource, raw)

    async def _apply_revision(self, work: Work, action: ApplyRevision) -> None:
        old = work.rejected
        if old is not None and old.fingerprint == _fingerprint(action) and self._clock() < old.at + REJECTED_SECONDS:
            return
        known = self._store.by_name(DEPLOYMENTS, work.key[0], action.name)
        live = known or await self._read_uncached(work, action.name)
        if live is not None and controller_uid(live) != work.pool["metadata"]["uid"]:
            raise NameTakenError(f"Deployment {action.name} belongs to another owner: delete it, or rename the pool")
        before = 0 if live is None else int(live["spec"].get("replicas", 1))
        # A Deployment that was not in the store when the size was decided must not be shrunk.
        after = action.replicas if known is not None else max(action.replicas, before)
        # The decision was made without a Deployment that is not in the store: its pods may be of another rendering.
        keeps = action.keeps_template if known is not None else before > 0
        body = stamped(action.manifest) if live is None or not keeps else stamped_as_applied(action.manifest, live)
        if live is not None:
            # The stored replicas may be out of date, so the write must fail if the Deployment has changed.
            version = {"resourceVersion": action.resource_version or version_of(live)}
            body["metadata"] = {**body["metadata"], **version}
        deleted = live is None and self._note_deletion(work, action.name)
        if self._must_wait(work, action.name):
            return
        must_lead(self._leader)
        work.replicas.pop(action.name, None)
        try:
            with self._counted(work, action.name):
                raw = await self._send(work.key[0], action.name, body, after)
        except ApiError as error:
            reason = _rejection(error)
            if not reason:
                raise
            work.rejected = Rejection(reason, error.message, _fingerprint(action), self._clock())
            return
        work.rejected = None
        self._scaled(work, action.name, before, after)
        if live is not None and version_of(raw) == version_of(live):
            return
        self._written(DEPLOYMENTS, raw, work)
        note = (
            _deleted(deleted)
            if live is None
            else _edited(drifted_fields(action.manifest, live), field_managers.last_editor(live))
        )
        if note and not work.edit_conflicts.open(action.name, self._clock()):
            self._emit_event(work.pool, EmitEvent("Warning", "EditReverted", f"Deployment {action.name} {note}"))

    async def _send(self, namespace: str, name: str, body: Raw, replicas: int) -> Raw:
        """Apply the whole Deployment; without a spec, patch its metadata and replicas.

        An apply without the template would give up its fields, and so delete them.
        """
        if body["spec"]:
            body["spec"] = {**body["spec"], "replicas": replicas}
            return await self._kube.apply(DEPLOYMENTS, namespace, name, body)
        meta = {field: body["metadata"][field] for field in ("labels", "annotations", "resourceVersion")}
        patch = {"metadata": meta, "spec": {"replicas": replicas}}
        return await self._kube.merge_patch(DEPLOYMENTS, namespace, name, patch)

    def _scaled(self, work: Work, name: str, before: int, after: int) -> None:
        work.replicas[name] = after
        if after > before:
            work.last_raise = self._clock()
        work.scaled += after - before

    def _note_deletion(self, work: Work, name: str) -> bool:
        """Return whether this process wrote the missing Deployment before; its deletion then counts as an edit."""
        if work.replicas.pop(name, None) is None:
            return False
        work.edit_conflicts.edited(name, "", "", self._clock())
        return True

    def _must_wait(self, work: Work, name: str) -> bool:
        """Return whether the write has to wait because another field manager edits the Deployment, too."""
        now = self._clock()
        wait = work.edit_conflicts.wait(name, now)
        if wait > 0:
            work.defer_until = min(now + wait, work.defer_until or now + wait)
        return wait > 0

    @contextmanager
    def _counted(self, work: Work, name: str) -> Iterator[None]:
        """Record a write of ours, unless it fails with a conflict: a failed write reverts no edit."""
        counts = True
        try:
            yield
        except ApiError as error:
            counts = not error.conflict
            raise
        finally:
            if counts:
                work.edit_conflicts.wrote(name, self._clock())

    async def _read_uncached(self, work: Work, name: str) -> Raw | None:
        """Read the Deployment before its first apply: a leader with an outdated store must not lower its replicas."""
        try:
            raw = await self._kube.get(DEPLOYMENTS, work.key[0], name)
        except ApiError as error:
            if error.missing:
                return None
            raise
        self._store.put(DEPLOYMENTS, raw)
        return raw

    async def _set_replicas(self, work: Work, action: SetReplicas) -> None:
        live = self._store.by_name(DEPLOYMENTS, work.key[0], action.name)
        if live is None:
            return
        before = int(live["spec"].get("replicas", 1))
        if action.replicas == before:
            return
        lowering = action.replicas < before
        if lowering and action.resource_version is None:
            raise ApiError(409, "Conflict", f"Deployment {action.name} has grown since a raise of it was decided")
        if action.replicas > before > 0 and (soon := work.last_raise + COALESCE_SECONDS) > self._clock():
            work.defer_until = soon
            return
        if self._must_wait(work, action.name):
            return
        must_lead(self._leader)
        if not lowering:
            work.last_raise = self._clock()
        work.replicas.pop(action.name, None)
        write = self._lower if lowering else self._raise
        with self._counted(work, action.name):
            raw = await write(work.key[0], live, action)
        work.replicas[action.name] = action.replicas
        work.scaled += action.replicas - before
        self._written(DEPLOYMENTS, raw, work)

    async def _lower(self, namespace: str, live: Raw, action: SetReplicas) -> Raw:
        meta = {"uid": live["metadata"]["uid"], "resourceVersion": action.resource_version}
        body = {"metadata": meta, "spec": {"replicas": action.replicas}}
        return await self._kube.merge_patch(DEPLOYMENTS, namespace, action.name, body)

    async def _raise(self, namespace: str, live: Raw, action: SetReplicas) -> Raw:
        """Raise replicas if they still are what was observed, because a late raise might lower them.

        The resourceVersion is no precondition here: each new pod changes the Deployment's status.
        """
        seen = {"/metadata/uid": live["metadata"]["uid"], "/spec/replicas": live["spec"].get("replicas", 1)}
        operations: list[Raw] = [{"op": "test", "path": path, "value": value} for path, value in seen.items()]
        operations.append({"op": "replace", "path": "/spec/replicas", "value": action.replicas})
        return await self._kube.json_patch(DEPLOYMENTS, namespace, action.name, operations)

    async def _set_deletion_cost(self, work: Work, action: SetDeletionCost) -> None:
        value = None if action.cost is None else str(action.cost)
        body = {"metadata": {"uid": action.uid, "annotations": {DELETION_COST: value}}}
        must_lead(self._leader)
        try:
            raw = await self._kube.merge_patch(PODS, work.key[0], action.pod, body)
        except ApiError as error:
            # The pod is gone, or its name belongs to another pod: nothing is left to cordon.
            if error.missing or error.conflict:
                return
            raise
        self._written(PODS, raw, work)

    async def _delete(
        self, resource: Resource, namespace: str, name: str, uid: str, work: Work, version: str = ""
    ) -> None:
        must_lead(self._leader)
        try:
            await self._kube.delete(resource, namespace, name, uid, version)
        except ApiError as error:
            if not error.conflict:
                raise
            if resource == DEPLOYMENTS:
                await self.refresh(resource, namespace, name)
            return
        work.writes += 1


def _deleted(was_ours: bool) -> str:
    return "was deleted by somebody; the operator creates it again" if was_ours else ""


def _edited(fields: tuple[str, ...], by: str) -> str:
    """Return the message about edited fields, "" without any."""
    note = f"was edited by somebody ({', '.join(fields[:5])}); what the pool declares is put back"
    return note + field_managers.named(by) if fields else ""


def _fingerprint(action: ApplyRevision) -> str:
    return f"{fingerprint(action.manifest)} {action.keeps_template}"


def _rejection(error: ApiError) -> str:
    """Return the condition's reason if a person must act, "" for an error that a retry may solve."""
    # An unknown field fails in the merge (500), before the strict validation could answer 400.
    if error.status in {400, 413, 422} or (error.status == 500 and "typed patch object" in error.message):
        return "PodTemplateRejected"
    if error.status == 403 and "quota" in error.message:
        return "QuotaExceeded"
    return ""
