"""The functions by which the lease manager reaches the rest of the operator."""

from collections.abc import Callable
from dataclasses import dataclass, field

from activity_operator.backlog.protocol import Key
from activity_operator.core.decision import EmitEvent


@dataclass(frozen=True, slots=True)
class LeaseManagerDeps:
    """The functions that the lease manager depends on.

    `pool_exists(uid)` and `pod_exists(uid)` answer from a filled store. `now` returns Unix seconds. `on_change` is
    called when the number of held or claimed leases has changed. `emit_event` publishes an Event on the pool. `leads`
    returns whether this process holds the Lease at this moment: a suspended process gets the end of its term later.
    """

    now: Callable[[], float]
    pool_exists: Callable[[str], bool]
    pod_exists: Callable[[str], bool]
    on_change: Callable[[Key], None] = field(default=lambda _key: None)
    emit_event: Callable[[Key, EmitEvent], None] = field(default=lambda _key, _event: None)
    leads: Callable[[], bool] = field(default=lambda: True)
