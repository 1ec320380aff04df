"""The leader's label on its own pod: the report Service selects by it, so workers' reports reach the leader."""

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

#: Seconds until a label that could not be set is tried again.
RETRY_SECONDS = 2.0
#: Seconds between two checks of the labels: without its label the leader gets no reports. A check costs one read.
LOOK_SECONDS = 30.0
#: Time-out in seconds for removing the label at the end of the process; the next leader removes it, too.
DROP_SECONDS = 4.0

log = logging.getLogger(__name__)


class LeaderLabel:
    """Sets the label on the leader's pod and removes it from other pods; without a pod name it does nothing."""

    def __init__(self, kube: KubeClient, namespace: str, pod: str, leader: Leader) -> None:
        self._kube = kube
        self._namespace = namespace
        self._pod = pod
        self._leader = leader
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Check the labels at once, because leadership began or ended."""
        self._changed.set()

    async def keep(self) -> None:
        """Keep the labels correct, until cancelled."""
        while True:
            self._changed.clear()
            leading = self._leader.leading
            settled = await self.settle(leading=leading)
            # A person or a late write of a former leader may have removed the label, so check it regularly.
            wait = (LOOK_SECONDS if leading else None) if settled else RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def drop(self) -> None:
        """Remove the label from this pod at the end of the process; give up after a few seconds."""
        try:
            async with asyncio.timeout(DROP_SECONDS):
                await self.settle(leading=False)
        except TimeoutError:
            log.warning("the leader's label is not taken away in %g s: that is the next leader's", DROP_SECONDS)

    async def settle(self, *, leading: bool) -> bool:
        """Correct the labels; return False if that failed and must be tried again.

        A standby handles only its own label. The leader also removes that of a former leader which hangs or was killed.
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
                # The precondition protects a pod that has become the leader in the meantime.
                await self._set(name, None, resourceVersion=raw["metadata"]["resourceVersion"])

    async def _set(self, pod: str, value: str | None, **precondition: str) -> None:
        body = {"metadata": {"labels": {LABEL_LEADER: value}, **precondition}}
        await self._kube.merge_patch(PODS, self._namespace, pod, body)
