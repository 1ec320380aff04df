"""The CRD is what the models say, small, structural, and explains itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from activity_operator.api.schema import crd, crd_yaml, main, pool_schema
from activity_operator.api.spec import PoolSpec
from activity_operator.api.structural import structural_schema
from tests.unit.activity_operator.api.arn_cases import GOOD_ARN

CRD_FILE = Path(__file__).parents[4] / "crds" / "activitypools.activitypools.dev.yaml"


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema in the schema with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from nodes(schema[inner], f"{path}[]")


NODES = dict(nodes(pool_schema()))
SPEC = pool_schema()["properties"]["spec"]
VERSION = crd()["spec"]["versions"][0]


def defaulted(value: Any, schema: dict[str, Any]) -> Any:
    """Fill in defaults as the API server does: a missing property takes its default, then its own are filled in."""
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    given = {name: child["default"] for name, child in schema["properties"].items() if "default" in child} | value
    return {name: defaulted(item, schema["properties"].get(name, {})) for name, item in given.items()}


def test_the_file_in_crds_is_what_the_models_give() -> None:
    assert main(["--check", str(CRD_FILE)]) == 0, "run make crds"


def test_a_stale_file_is_told_with_the_command_that_renews_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "crd.yaml"
    stale.write_text("old")

    assert main(["--check", str(stale)]) == 1
    assert f"--write {stale}" in capsys.readouterr().err
    assert main(["--write", str(stale)]) == 0
    assert main(["--check", str(stale)]) == 0


def test_without_a_path_the_crd_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])

    assert yaml.safe_load(capsys.readouterr().out) == crd()


def test_the_file_says_that_it_is_generated_and_stays_under_64_kib() -> None:
    text = CRD_FILE.read_bytes()

    assert text.startswith(b"# Generated, do not edit")
    assert len(text) < 64 * 1024


@pytest.mark.parametrize("path", sorted(path for path in NODES if not path.endswith("[]")))
def test_every_field_is_described(path: str) -> None:
    theirs = {".metadata", ".metadata.name"}  # described by the API server itself

    assert path in theirs or NODES[path].get("description", "").endswith(".")


@pytest.mark.parametrize("path", sorted(NODES))
def test_every_schema_is_structural(path: str) -> None:
    node = NODES[path]

    assert isinstance(node.get("type"), str)
    assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "const", "prefixItems"} & node.keys()
    assert not {"properties", "additionalProperties"} <= node.keys()
    assert not isinstance(node.get("exclusiveMinimum"), int | float) or isinstance(node["exclusiveMinimum"], bool)
    assert "maxLength" not in node or node["type"] == "string"
    assert "maxItems" not in node or node["type"] == "array"


def test_the_api_servers_defaults_are_the_models() -> None:
    given = {"activityArn": GOOD_ARN, "handlerImage": "x", "maxWorkers": 3}
    ours = PoolSpec.model_validate(given).model_dump(by_alias=True, exclude_none=True, exclude={"aws", "pod_template"})

    assert defaulted(given, SPEC) == ours


def test_an_optional_group_does_not_appear_by_itself_and_is_filled_in_once_it_is_there() -> None:
    assert "prometheus" not in defaulted({}, SPEC)["scaling"]
    assert "default" not in SPEC["properties"]["source"]
    members = SPEC["properties"]["source"]["properties"]
    assert ["default" in member for member in members.values()] == [False, False, False]

    given = {"redis": {"address": "redis:6379", "flow": "images", "queue": "resize"}}
    assert defaulted(given, SPEC["properties"]["source"]) == {
        "redis": {**given["redis"], "nextQueue": "", "lockSeconds": 180, "renewLock": False, "conclude": "Dialect"}
    }
    assert defaulted({"taskStore": {}}, SPEC["properties"]["source"]) == {"taskStore": {"leaseSeconds": 60}}


def test_replicas_have_no_default_so_that_absence_means_autoscaling() -> None:
    assert "default" not in SPEC["properties"]["replicas"]


def test_the_status_starts_with_an_observed_generation_of_minus_one_and_no_other_default() -> None:
    assert NODES[".status"]["default"] == {"observedGeneration": -1}
    assert [path for path in NODES if path.startswith(".status.") and "default" in NODES[path]] == []


def test_only_image_and_max_workers_are_required() -> None:
    assert sorted(SPEC["required"]) == ["handlerImage", "maxWorkers"]


def test_conditions_are_a_list_keyed_by_type() -> None:
    conditions = NODES[".status.conditions"]

    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_the_columns_are_those_of_the_design() -> None:
    columns = VERSION["additionalPrinterColumns"]

    assert " ".join(column["name"] for column in columns if column["priority"] == 0) == (
        "Ready Workers Desired Busy Backlog Min Max Age"
    )
    assert (
        " ".join(column["name"] for column in columns if column["priority"] == 1)
        == "Active Paused Image ARN Source Message"
    )


def test_both_subresources_are_there() -> None:
    assert VERSION["subresources"]["status"] == {}
    assert VERSION["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def test_every_rule_has_a_sentence_for_people() -> None:
    rules = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]

    assert len(rules) > 15
    assert all(rule["message"] for rule in rules)


def test_the_file_has_no_anchors() -> None:
    assert "&id" not in crd_yaml()


def test_a_union_is_refused_because_a_crd_cannot_say_it() -> None:
    class Either(BaseModel):
        """A model that no CRD can hold."""

        value: int | str

    with pytest.raises(ValueError, match="no union of 2 types"):
        structural_schema(Either, defaults=True)
