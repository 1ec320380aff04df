"""How long a worker's pod has to end: the operator renders that, and the worker uses it."""

from typing import Final

#: Seconds by which the pod's grace period exceeds the drain timeout: an open poll (at most 76 s), the worker's last
#: report (at most 10 s), and time for the process to end.
GRACE_MARGIN_SECONDS: Final = 90
#: Seconds that a cancelled handler has to end. The margin contains this time.
DEFAULT_CANCEL_GRACE_SECONDS: Final = 5.0


def pod_grace_seconds(drain_timeout_seconds: float, cancel_grace_seconds: float) -> float:
    """Return how long the kubelet waits before it kills a pod, from the SIGTERM on."""
    longer = max(cancel_grace_seconds - DEFAULT_CANCEL_GRACE_SECONDS, 0.0)
    return drain_timeout_seconds + GRACE_MARGIN_SECONDS + longer
