"""The leader's label on its own pod: the report Service selects by it, so workers reach the process that decides."""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from activity_operator.cluster import fence
from activity_operator.cluster.apply import NotLeadingError, must_lead
from activity_operator.cluster.interfaces import Leader
from activity_operator.cluster.kube import KubeClient, KubeError
from activity_operator.cluster.resources import PODS, Raw
from activity_worker.contract import LABEL_LEADER

#: How often a label that could not be set is tried again.
RETRY_SECONDS = 2.0
#: How often the leader looks whether the labels are still right: without one, no worker reaches it. At rest a read.
LOOK_SECONDS = 30.0
#: What the label may take of the end of the process; the next leader takes it away as well.
DROP_SECONDS = 4.0

log = logging.getLogger(__name__)


class LeaderLabel:
    """Sets the label on one pod of the operator and takes it from the others; without a pod name it does nothing."""

    def __init__(self, kube: KubeClient, namespace: str, pod: str, leader: Leader) -> None:
        self._kube = kube
        self._namespace = namespace
        self._pod = pod
        self._leader = leader
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Leadership came or went: look at once."""
        self._changed.set()

    async def keep(self) -> None:
        """Keep the labels as they should be, until cancelled."""
        while True:
            self._changed.clear()
            leading = self._leader.leading
            settled = await self.settle(leading=leading)
            # A label that somebody else took away, or that a former leader's late write did, comes back by itself.
            wait = (LOOK_SECONDS if leading else None) if settled else RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def drop(self) -> None:
        """Take the label from this pod at its end, if that takes no longer than a few seconds."""
        try:
            async with asyncio.timeout(DROP_SECONDS):
                await self.settle(leading=False)
        except TimeoutError:
            log.warning("the leader's label is not taken away in %g s: that is the next leader's", DROP_SECONDS)

    async def settle(self, *, leading: bool) -> bool:
        """Make the labels as they should be; False when that failed and has to be tried again.

        A standby minds only itself. The leader also frees a former leader that cannot: one that hangs or was killed.
        """
        if not self._pod:
            return True
        try:
            found, _ = await self._kube.list(PODS, self._namespace, f"{LABEL_LEADER}=true")
            labelled = {str(raw["metadata"]["name"]): raw for raw in found}
            if leading:
                with fence.checked_before_send(partial(must_lead, self._leader)):
                    await self._lead(labelled)
            elif self._pod in labelled:
                await self._set(self._pod, None)
        except KubeError as error:
            log.warning("the leader's label is not settled: %s", error)
            return False
        except NotLeadingError:
            log.info("the leader's label is not settled: the Lease was lost meanwhile")
            return False
        return True

    async def _lead(self, labelled: dict[str, Raw]) -> None:
        if self._pod not in labelled:
            await self._set(self._pod, "true")
        for name, raw in labelled.items():
            if name != self._pod:
                # Only as it was seen: it may lead by the time at which this arrives.
                await self._set(name, None, resourceVersion=raw["metadata"]["resourceVersion"])

    async def _set(self, pod: str, value: str | None, **precondition: str) -> None:
        body = {"metadata": {"labels": {LABEL_LEADER: value}, **precondition}}
        await self._kube.merge_patch(PODS, self._namespace, pod, body)
