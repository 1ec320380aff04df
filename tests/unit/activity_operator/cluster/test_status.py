"""When a status is written: at once for what conditions say, ten seconds apart for counts, never when equal."""

from typing import Any, cast

from activity_operator.api.errors import SpecError
from activity_operator.cluster.kube import KubeClient
from activity_operator.cluster.status import StatusWriter, invalid, is_urgent

WRITER = StatusWriter(cast("KubeClient", None))


def status(reason: str = "PoolReady", **more: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": reason, "message": "m", "observedGeneration": 1}
    return {"observedGeneration": 1, "conditions": [condition], "replicas": 1, **more}


def pool(held: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"generation": 3}, "status": held}


def test_an_equal_status_is_never_written() -> None:
    assert WRITER.wait(pool(status()), status(), 1000.0) is None


def test_what_the_api_server_leaves_out_is_no_difference() -> None:
    assert WRITER.wait(pool(status()), status(selector="", events=[], backlog=None), 1000.0) is None


def test_a_condition_is_written_at_once() -> None:
    assert WRITER.wait(pool(status()), status("WorkersNotReady"), 0.1) == 0.0


def test_a_new_generation_is_written_at_once() -> None:
    assert WRITER.wait(pool(status()), status() | {"observedGeneration": 2}, 0.1) == 0.0


def test_counts_wait_for_ten_seconds_since_the_last_write() -> None:
    assert WRITER.wait(pool(status()), status(replicas=2), 4.0) == 6.0
    assert WRITER.wait(pool(status()), status(replicas=2), 11.0) == 0.0


def test_other_words_for_the_same_condition_are_not_urgent() -> None:
    wanted = status()
    wanted["conditions"][0]["message"] = "3 of 5 workers are ready"

    assert not is_urgent(status(), wanted)


def test_an_unusable_spec_keeps_what_was_known_and_says_what_to_fix() -> None:
    said = invalid(pool(status(replicas=4)), SpecError("podTemplate.spec", None, "must not set hostNetwork"), 1e9)

    assert said["replicas"] == 4
    assert said["observedGeneration"] == 3
    assert {c["type"]: c["status"] for c in said["conditions"]} == {"Ready": "False", "Stalled": "True"}
    assert "hostNetwork" in said["conditions"][0]["message"]
