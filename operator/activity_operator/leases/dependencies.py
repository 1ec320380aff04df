"""What custody asks of the rest of the operator."""

from collections.abc import Callable
from dataclasses import dataclass, field

from activity_operator.backlog.protocol import Key
from activity_operator.core.decision import EmitEvent


@dataclass(frozen=True, slots=True)
class LeaseManagerDeps:
    """Questions that custody asks, and whom it tells.

    `pool_exists(uid)` and `pod_exists(uid)` answer from a store that has been filled; `now` is Unix seconds;
    `on_change` is called when held or claimed leases changed in number; `emit_event` publishes an Event on the pool;
    `leads` tells right now whether this process holds the Lease: one that was stopped hears later that its term is
    over.
    """

    now: Callable[[], float]
    pool_exists: Callable[[str], bool]
    pod_exists: Callable[[str], bool]
    on_change: Callable[[Key], None] = field(default=lambda _key: None)
    emit_event: Callable[[Key, EmitEvent], None] = field(default=lambda _key, _event: None)
    leads: Callable[[], bool] = field(default=lambda: True)
