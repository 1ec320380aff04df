"""Objects that have not changed are not parsed again, however often their pool is observed."""

from typing import Any

import pytest

from activity_operator.cluster import parsed_pool
from activity_operator.cluster.facts import pod_facts
from activity_operator.cluster.parsed_pool import ParsedPods, ParsedPool, parse_pods, parse_pool_spec
from activity_operator.cluster.resources import Raw

SPEC = {"activityArn": "arn:aws:states:us-east-1:123456789012:activity:a", "handlerImage": "i", "maxWorkers": 5}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pods that were parsed."""
    names: list[str] = []

    def note(raw: Raw) -> Any:
        names.append(raw["metadata"]["name"])
        return pod_facts(raw)

    monkeypatch.setattr(parsed_pool, "pod_facts", note)
    return names


def pod(name: str, phase: str = "Running") -> Raw:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "status": {"phase": phase}}


def test_unchanged_pods_are_parsed_once(parsed: list[str]) -> None:
    a, b = pod("a"), pod("b")
    first = parse_pods((a, b), ParsedPods())
    again = parse_pods((a, b), first)

    assert parsed == ["a", "b"]
    assert again.facts == first.facts


def test_only_the_pod_that_changed_is_parsed_again(parsed: list[str]) -> None:
    a, b = pod("a"), pod("b")
    first = parse_pods((a, b), ParsedPods())
    parsed.clear()
    found = parse_pods((pod("a", "Failed"), b, pod("c")), first)

    assert parsed == ["a", "c"]
    assert [(facts.name, facts.phase) for facts in found.facts] == [("a", "Failed"), ("b", "Running"), ("c", "Running")]
    assert set(found.by_uid) == {"a", "b", "c"}


def test_same_version_of_a_restored_storage_is_parsed_again(parsed: list[str]) -> None:
    """After a restore of etcd a resourceVersion may come again for another state of the same pod."""
    first = parse_pods((pod("a"),), ParsedPods())

    assert parse_pods((pod("a", "Failed"),), first).facts[0].phase == "Failed"


def test_spec_is_parsed_again_only_when_it_has_changed() -> None:
    spec = parse_pool_spec(dict(SPEC), None)
    before = ParsedPool(dict(SPEC), spec, 1, (), ())

    assert parse_pool_spec(dict(SPEC), before) is spec
    assert parse_pool_spec({**SPEC, "maxWorkers": 6}, before).max_workers == 6


def test_deployment_is_compared_again_when_it_or_the_spec_has_changed() -> None:
    spec = parse_pool_spec(dict(SPEC), None)
    raw: Raw = {"metadata": {"name": "d"}}
    before = ParsedPool(dict(SPEC), spec, 1, (raw,), ())

    assert before.is_of(spec, 1, [raw])
    assert not before.is_of(spec, 2, [raw])
    assert not before.is_of(spec, 1, [dict(raw)])
    assert not before.is_of(spec, 1, [raw, raw])
    assert not before.is_of(parse_pool_spec(dict(SPEC), None), 1, [raw])
