"""A pool with silent workers whose report path is the suspect."""

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import DeletePod, ScalingMemory
from activity_operator.core.observation import SourceFacts
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pod, pool

SILENT = {"reported_at": NOW - 400.0}


def test_excused_worker_is_kept_and_other_stalled_workers_are_replaced() -> None:
    """Both are unready; the silence of the first one is explained by its node's network."""
    pods = (pod("w1", ready=False), pod("w2", ready=False), pod("w3"))
    reports = (busy("w1", **SILENT), busy("w2", **SILENT), busy("w3"))
    decision = decide(pool(), observed(*pods, *reports, excused_workers={"w1": "node n1"}), ScalingMemory())

    assert [action.pod for action in decision.actions if isinstance(action, DeletePod)] == ["w2"]


@pytest.mark.parametrize(("ready", "size"), [(True, 2), (False, 3)])
def test_excused_worker_keeps_its_place_while_its_pod_is_ready(ready: bool, size: int) -> None:
    """An unready pod on a silent node is probably lost: another worker starts in its stead."""
    pods = (pod("w1", ready=ready), pod("w2"))
    reports = (busy("w1", **SILENT), busy("w2", reported_at=NOW - 1.0))
    counted_once = SourceFacts(counts=counted(1))
    observation = observed(*pods, *reports, excused_workers={"w1": "node n1"}, source=counted_once)

    assert decide(pool(), observation, ScalingMemory()).size.desired == size
