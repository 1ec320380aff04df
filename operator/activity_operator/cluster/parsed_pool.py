"""What is parsed of a pool's objects: each object is parsed once for each of its changes, not for each observation.

The store never changes an object but replaces it, so the same object has the same facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activity_operator.api.spec import PoolSpec, parse_spec
from activity_operator.cluster.facts import pod_facts
from activity_operator.cluster.resources import Raw
from activity_operator.core.observation import DeploymentFacts, PodFacts


@dataclass(frozen=True, slots=True)
class ParsedPods:
    """The pods of one observation: as they are stored (`raws`), their facts in the same order, and these by UID."""

    raws: tuple[Raw, ...] = ()
    facts: tuple[PodFacts, ...] = ()
    by_uid: Mapping[str, PodFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedPool:
    """A pool's spec, and its Deployments compared with what is rendered from that spec for one generation."""

    raw_spec: Raw
    spec: PoolSpec
    generation: int
    raw_deployments: tuple[Raw, ...]
    deployments: tuple[DeploymentFacts, ...]

    def is_of(self, spec: PoolSpec, generation: int, raws: Sequence[Raw]) -> bool:
        """Whether `deployments` are the facts of these Deployments for this spec."""
        same = spec is self.spec and generation == self.generation and len(raws) == len(self.raw_deployments)
        return same and all(map(_is_identical, raws, self.raw_deployments))


def parse_pods(raws: tuple[Raw, ...], before: ParsedPods) -> ParsedPods:
    """Return the facts of these pods; those that are in `before` are taken from there."""
    if raws is before.raws:
        return before
    known = {id(raw): facts for raw, facts in zip(before.raws, before.facts, strict=True)}
    facts = tuple(known.get(id(raw)) or pod_facts(raw) for raw in raws)
    return ParsedPods(raws, facts, {pod.uid: pod for pod in facts})


def parse_pool_spec(raw_spec: Raw, before: ParsedPool | None) -> PoolSpec:
    """Return the spec, parsed again only if it has changed. Raises `SpecError`."""
    return before.spec if before is not None and before.raw_spec == raw_spec else parse_spec(raw_spec)


def _is_identical(one: object, other: object) -> bool:
    return one is other
