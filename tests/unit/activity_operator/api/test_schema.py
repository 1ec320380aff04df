"""The CRD equals the models, is small and structural, and describes every field."""

import re
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
    """Fill in defaults as the API server does: first a missing property, then the properties below it."""
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    given = {name: child["default"] for name, child in schema["properties"].items() if "default" in child} | value
    return {name: defaulted(item, schema["properties"].get(name, {})) for name, item in given.items()}


def test_file_in_crds_is_generated_from_the_models() -> None:
    assert main(["--check", str(CRD_FILE)]) == 0, "run make crds"


def test_stale_file_is_reported_with_the_command_that_renews_it(
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


def test_file_is_marked_as_generated_and_fits_into_an_annotation() -> None:
    """`kubectl apply` keeps the whole file in an annotation, of 256 KiB at most: three eighths of that are enough."""
    text = CRD_FILE.read_bytes()

    assert text.startswith(b"# Generated, do not edit")
    assert len(text) < 96 * 1024


@pytest.mark.parametrize("path", sorted(path for path in NODES if not path.endswith("[]")))
def test_every_field_is_described(path: str) -> None:
    of_kubernetes = {".metadata", ".metadata.name"}  # described by the API server itself

    assert path in of_kubernetes or NODES[path].get("description", "").endswith(".")


@pytest.mark.parametrize("path", sorted(NODES))
def test_every_schema_is_structural(path: str) -> None:
    node = NODES[path]

    assert isinstance(node.get("type"), str)
    assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "const", "prefixItems"} & node.keys()
    assert not {"properties", "additionalProperties"} <= node.keys()
    assert not isinstance(node.get("exclusiveMinimum"), int | float) or isinstance(node["exclusiveMinimum"], bool)
    assert "maxLength" not in node or node["type"] == "string"
    assert "maxItems" not in node or node["type"] == "array"


def test_defaults_of_the_api_server_equal_those_of_the_models() -> None:
    given = {"activityArn": GOOD_ARN, "handlerImage": "x", "maxWorkers": 3}
    ours = PoolSpec.model_validate(given).model_dump(by_alias=True, exclude_none=True, exclude={"aws", "pod_template"})
    # An object without a default inside it is left out.
    assert ours["scaling"].pop("scaleDown") == {}

    assert defaulted(given, SPEC) == ours


def test_optional_group_gets_defaults_only_if_it_is_present() -> None:
    assert "prometheus" not in defaulted({}, SPEC)["scaling"]
    assert "default" not in SPEC["properties"]["source"]
    members = SPEC["properties"]["source"]["properties"]
    assert ["default" in member for member in members.values()] == [False] * 5

    given = {"redis": {"address": "redis:6379", "flow": "images", "queue": "resize"}}
    usual = {"nextQueue": "", "lockSeconds": 180, "renewLock": False, "blockSeconds": 3, "conclude": "Dialect"}
    assert defaulted(given, SPEC["properties"]["source"]) == {"redis": given["redis"] | usual}
    assert defaulted({"taskStore": {}}, SPEC["properties"]["source"]) == {"taskStore": {"leaseSeconds": 60}}


def test_replicas_have_no_default_so_that_absence_means_autoscaling() -> None:
    assert "default" not in SPEC["properties"]["replicas"]


def test_status_has_only_an_observed_generation_of_minus_1_by_default() -> None:
    assert NODES[".status"]["default"] == {"observedGeneration": -1}
    assert [path for path in NODES if path.startswith(".status.") and "default" in NODES[path]] == []


def test_only_image_and_max_workers_are_required() -> None:
    assert sorted(SPEC["required"]) == ["handlerImage", "maxWorkers"]


def test_conditions_are_a_list_keyed_by_type() -> None:
    conditions = NODES[".status.conditions"]

    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_printer_columns_and_their_priority() -> None:
    columns = VERSION["additionalPrinterColumns"]

    assert " ".join(column["name"] for column in columns if column["priority"] == 0) == (
        "Ready Workers Desired Busy Backlog Min Max Age Reason"
    )
    assert (
        " ".join(column["name"] for column in columns if column["priority"] == 1)
        == "Active Paused Image ARN Source Message"
    )


def test_status_and_scale_subresources_exist() -> None:
    assert VERSION["subresources"]["status"] == {}
    assert VERSION["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def test_every_validation_rule_has_a_message() -> None:
    rules = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]

    assert len(rules) > 15
    assert all(rule["message"] for rule in rules)


def test_message_expressions_end_each_text_where_it_ends() -> None:
    """An apostrophe in a message ends its text; the API server then refuses the whole CRD."""
    rules = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", ())]
    for expression in (rule["messageExpression"] for rule in rules if "messageExpression" in rule):
        rest = re.sub(r"'(?:[^'\\]|\\.)*'", "TEXT", expression)
        assert "'" not in rest, expression
        assert not re.search(r"\wTEXT|TEXT\w|TEXT *TEXT", rest), expression


def test_file_has_no_anchors() -> None:
    assert "&id" not in crd_yaml()


def test_union_type_is_refused() -> None:
    class Either(BaseModel):
        """A model that a CRD cannot express."""

        value: int | str

    with pytest.raises(ValueError, match="no union of 2 types"):
        structural_schema(Either, defaults=True)
