"""Status writes: at once for changed conditions, ten seconds apart for counts, none for an equal status."""

from typing import Any, cast

from activity_operator.api.errors import SpecError
from activity_operator.cluster.kube import KubeClient
from activity_operator.cluster.status_writer import StatusWriter, invalid_spec_status, is_urgent

WRITER = StatusWriter(cast("KubeClient", None))


def status(reason: str = "PoolReady", **more: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": reason, "message": "m", "observedGeneration": 1}
    return {"observedGeneration": 1, "conditions": [condition], "replicas": 1, **more}


def pool(current: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"generation": 3}, "status": current}


def test_equal_status_is_not_written() -> None:
    assert WRITER.wait(pool(status()), status(), 1000.0) is None


def test_empty_fields_that_the_api_server_drops_are_no_difference() -> None:
    assert WRITER.wait(pool(status()), status(selector="", events=[], backlog=None), 1000.0) is None


def test_changed_condition_is_written_at_once() -> None:
    assert WRITER.wait(pool(status()), status("WorkersNotReady"), 0.1) == 0.0


def test_new_generation_is_written_at_once() -> None:
    assert WRITER.wait(pool(status()), status() | {"observedGeneration": 2}, 0.1) == 0.0


def test_counts_are_written_ten_seconds_after_the_last_write() -> None:
    assert WRITER.wait(pool(status()), status(replicas=2), 4.0) == 6.0
    assert WRITER.wait(pool(status()), status(replicas=2), 11.0) == 0.0


def test_changed_message_of_a_condition_is_not_urgent() -> None:
    wanted = status()
    wanted["conditions"][0]["message"] = "3 of 5 workers are ready"

    assert not is_urgent(status(), wanted)


def test_invalid_spec_keeps_former_counts_and_names_the_fix() -> None:
    written = invalid_spec_status(
        pool(status(replicas=4)), SpecError("podTemplate.spec", None, "must not set hostNetwork"), 1e9
    )

    assert written["replicas"] == 4
    assert written["observedGeneration"] == 3
    assert {c["type"]: c["status"] for c in written["conditions"]} == {"Ready": "False", "Stalled": "True"}
    assert "hostNetwork" in written["conditions"][0]["message"]
