"""The leader's label on its own pod: the report Service selects by it, so workers reach the process that decides."""

import logging

from activity_operator.cluster.kinds import PODS
from activity_operator.cluster.kube import KubeClient, KubeError
from activity_worker.contract import LABEL_LEADER

log = logging.getLogger(__name__)


class LeaderLabel:
    """Sets the label on one pod of the operator and takes it from the others; without a pod name it does nothing."""

    def __init__(self, kube: KubeClient, namespace: str, pod: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._pod = pod

    async def settle(self, *, leading: bool) -> bool:
        """Make the labels as they should be; False when that failed and has to be tried again.

        A standby minds only itself. The leader also frees a former leader that cannot: one that hangs or was killed.
        """
        if not self._pod:
            return True
        try:
            found, _ = await self._kube.list(PODS, self._namespace, f"{LABEL_LEADER}=true")
            labelled = {str(raw["metadata"]["name"]) for raw in found}
            if leading and self._pod not in labelled:
                await self._set(self._pod, "true")
            for name in labelled - {self._pod} if leading else labelled & {self._pod}:
                await self._set(name, None)
        except KubeError as error:
            log.warning("the leader's label is not settled: %s", error)
            return False
        return True

    async def _set(self, pod: str, value: str | None) -> None:
        await self._kube.merge_patch(PODS, self._namespace, pod, {"metadata": {"labels": {LABEL_LEADER: value}}})
