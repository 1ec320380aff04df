"""PURE: the ActivityPool in the text of a manifest."""

import yaml

from activity_operator.api.errors import SpecError
from activity_operator.api.spec import PoolSpec, parse_spec
from activity_operator.simulate.errors import SimulationError

KIND = "ActivityPool"


def read_manifest(name: str, text: str) -> PoolSpec:
    """Return the spec of the one ActivityPool in a manifest; other objects beside it are skipped.

    Raises SimulationError with the file's name, the field, its value and the fix.
    """
    try:
        documents = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    except yaml.YAMLError as error:
        raise SimulationError(f"{name}: is no YAML: {' '.join(str(error).split())}") from error
    pools = [one for one in documents if one.get("kind") == KIND]
    if len(pools) != 1:
        raise SimulationError(f"{name}: has {len(pools)} objects of kind {KIND}; keep exactly one")
    spec = pools[0].get("spec")
    if not isinstance(spec, dict):
        raise SimulationError(f"{name}: spec is missing; write the fields of the {KIND} below `spec:`")
    try:
        return parse_spec(spec)
    except SpecError as error:
        raise SimulationError(f"{name}: {error}") from error
