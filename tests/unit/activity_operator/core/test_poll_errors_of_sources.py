"""What a pool says of its workers' failing polls of a task list and of a taskbroker."""

from typing import Any

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_worker.contract import PollFault, PollTrouble
from tests.unit.activity_operator.core.builders import busy, observed, pool, worker
from tests.unit.activity_operator.core.test_not_ready_messages import conditions_of

SWF = {"swf": {"domain": "media", "taskList": "resize"}}
BROKER = {"taskbroker": {"addresses": ["broker:7990"], "signingSecretRef": {"name": "signing", "key": "key"}}}


def spec_of(source: dict[str, Any]) -> PoolSpec:
    return pool(
        activityArn=None, source=source, minWorkers=2, **({"aws": {"region": "eu-west-1"}} if source is SWF else {})
    )


@pytest.mark.parametrize(
    ("source", "fault", "reason", "words"),
    [
        (SWF, PollFault.DENIED, Reason.ACCESS_DENIED, "allow swf:PollForActivityTask to the workers' identity"),
        (SWF, PollFault.MISSING, Reason.DOMAIN_NOT_FOUND, "the domain media does not exist in eu-west-1: register it"),
        (SWF, PollFault.THROTTLED, Reason.THROTTLED, "a task list has at most 1,000 open polls"),
        (SWF, PollFault.UNREACHABLE, Reason.BACKEND_UNREACHABLE, "cannot poll eu-west-1: check spec.aws.endpointUrl"),
        (BROKER, PollFault.DENIED, Reason.ACCESS_DENIED, "correct what spec.source.taskbroker.signingSecretRef names"),
        (BROKER, PollFault.THROTTLED, Reason.THROTTLED, "broker:7990 refuses more calls: lower maxWorkers"),
        (BROKER, PollFault.UNREACHABLE, Reason.BACKEND_UNREACHABLE, "cannot use the taskbroker at broker:7990: check"),
    ],
)
def test_failing_polls_name_the_source_and_the_fix(
    source: dict[str, Any], fault: PollFault, reason: Reason, words: str
) -> None:
    trouble = PollTrouble(fault, "SomeError", "its words")
    ready = conditions_of(observed(worker("w1", poll_trouble=trouble), busy("w2")), spec_of(source))["Ready"]

    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert words in ready["message"]
    assert "w1" in ready["message"]
    assert ready["message"].endswith("SomeError: its words)")
