"""Two writers: what the audit log of an API server says about replicas and the Lease."""

import json
from pathlib import Path
from typing import Any

from tests.faults.audit import former_leader_writes, writers
from tests.servers.control_plane import audit_log

REPLICAS = ("operator-a", "operator-b")


def event(second: float, user: str, verb: str, resource: str, version: int = 0, **said: Any) -> dict[str, Any]:
    """Return an entry of the log; it was received a tenth of a second before it was answered."""
    answer: dict[str, Any] = {"metadata": {"resourceVersion": str(version)}} if version else {"kind": "Status"}
    if "holder" in said:
        answer["spec"] = {"holderIdentity": said["holder"]}
    resource, _, sub = resource.partition("/")
    place = {"resource": resource, "namespace": "pools", "name": "resize"} | ({"subresource": sub} if sub else {})
    if resource in {"leases", "secrets"}:
        place |= {"namespace": "system", "name": "the-lease" if resource == "leases" else said.get("name", "lease-0a")}
    return {
        "user": {"username": user},
        "verb": verb,
        "requestURI": said.get("uri", "/"),
        "objectRef": place,
        "responseStatus": {"code": said.get("code", 200)},
        "responseObject": answer,
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second - 0.1:09.6f}Z",
        "stageTimestamp": f"2026-01-01T00:00:{second:09.6f}Z",
    }


#: a leads from version 10 on, b from version 20 on.
A_THEN_B = (
    event(1, "operator-a", "create", "leases", 10, holder="operator-a_1"),
    event(2, "operator-a", "update", "leases", 12, holder="operator-a_1"),
    event(10, "operator-b", "update", "leases", 20, holder="operator-b_1"),
)


def said(folder: Path, *events: dict[str, Any]) -> list[str]:
    """Return what is said of these entries after those of the Lease."""
    audit_log(folder).write_text("".join(json.dumps(one) + "\n" for one in (*A_THEN_B, *events)))
    return former_leader_writes(writers(folder, ("pools", "system")), "system", "the-lease", REPLICAS)


def test_the_holders_writes_are_theirs_by_the_order_of_versions(tmp_path: Path) -> None:
    early = event(5, "operator-a", "patch", "deployments", 15)
    # Answered after b took over, but made before.
    slow = event(11, "operator-a", "patch", "deployments", 19)
    late = event(12, "operator-b", "patch", "activitypools/status", 21)

    assert said(tmp_path, early, slow, late) == []


def test_a_write_of_a_former_leader_that_took_effect_is_told(tmp_path: Path) -> None:
    late = event(12, "operator-a", "patch", "deployments", 21)

    assert said(tmp_path, late) == [
        "patch deployments resize by operator-a took effect while operator-b held the Lease"
    ]


def test_a_write_before_one_leads_is_told(tmp_path: Path) -> None:
    early = event(5, "operator-b", "patch", "pods", 15)

    assert said(tmp_path, early) == ["patch pods resize by operator-b took effect while operator-a held the Lease"]


def test_a_late_write_that_was_refused_is_none(tmp_path: Path) -> None:
    assert said(tmp_path, event(12, "operator-a", "patch", "deployments", code=409)) == []


def test_a_write_that_changed_nothing_is_none(tmp_path: Path) -> None:
    done = event(5, "operator-a", "patch", "deployments", 15)
    again = event(12, "operator-b", "patch", "deployments", 15)
    tried = event(13, "operator-b", "patch", "deployments", 25, uri="/apis?dryRun=All")

    assert said(tmp_path, done, again, tried) == []


def test_a_removal_goes_by_its_time(tmp_path: Path) -> None:
    in_between = event(10.05, "operator-a", "delete", "deployments")
    late = event(12, "operator-a", "delete", "deployments")

    assert said(tmp_path, in_between) == []
    assert len(said(tmp_path, late)) == 1


def test_recording_a_lease_is_nobodys_privilege_and_giving_it_away_is(tmp_path: Path) -> None:
    recorded = event(12, "operator-a", "create", "secrets", code=201)
    certificate = event(12, "operator-a", "update", "secrets", name="certificates")
    claimed = event(12, "operator-a", "update", "secrets")

    assert said(tmp_path, recorded, certificate) == []
    assert len(said(tmp_path, claimed)) == 1


def test_writer_may_delete_its_own_untouched_record_after_its_term(tmp_path: Path) -> None:
    made = event(12, "operator-a", "create", "secrets", code=201)
    claimed = event(13, "operator-b", "update", "secrets")
    removed = event(14, "operator-a", "delete", "secrets")

    assert said(tmp_path, made, removed) == []
    assert len(said(tmp_path, made, claimed, removed)) == 1
    assert len(said(tmp_path, event(12, "operator-b", "create", "secrets", code=201), removed)) == 1


def test_who_is_no_replica_may_write(tmp_path: Path) -> None:
    assert said(tmp_path, event(12, "controllers", "update", "deployments/status", 21)) == []
