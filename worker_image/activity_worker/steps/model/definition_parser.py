"""From a map, as a definition is written or stored, to a checked definition."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from activity_worker.config.spans import parse_seconds
from activity_worker.steps.model import paths
from activity_worker.steps.model.definition import DEFAULT_RETRY, Call, Definition, Retry, Step
from activity_worker.steps.model.storable import as_stored

_TASK_FIELDS: Final = {"name", "data", "steps", "retry", "ignoreError"}
_CALL_FIELDS: Final = {"method", "retry", "input", "output", "timeout"}
_STEP_FIELDS: Final = _CALL_FIELDS | {"check", "error", "reverse", "ignoreError"}
_RETRY_FIELDS: Final = {"retries", "delays"}
SESSION: Final = "session"
#: Longest name of a task, in characters: what the store's column holds.
MAX_NAME: Final = 255


class DefinitionError(ValueError):
    """A definition that cannot be used; names the task, the step (counted from 0) and the field."""

    def __init__(self, task: str, field: str, problem: str, step: int | None = None) -> None:
        where = f"task {task!r}" if step is None else f"task {task!r}, step {step}"
        super().__init__(f"{where}, {field}: {problem}")
        self.task = task
        self.step = step
        self.field = field


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a definition we are, and what holds there unless the map says otherwise."""

    task: str
    retry: Retry | None = None
    step: int | None = None
    path: str = ""

    def error(self, field: str, problem: str) -> DefinitionError:
        return DefinitionError(self.task, self.path + field, problem, self.step)

    def within(self, field: str) -> "_Place":
        return replace(self, path=f"{self.path}{field}.")


def parse(source: Mapping[str, Any]) -> Definition:
    """Return the definition. Raises DefinitionError naming the task, the step and the field."""
    name = source.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise DefinitionError(
            str(name), "name", f"a task needs a name, a non-empty string of up to {MAX_NAME} characters"
        )
    place = _Place(name)
    _only(place, source, _TASK_FIELDS)
    # A copy: what the caller does with the map afterwards must not make another version of this one.
    source = _json(place, source)
    data = source.get("data", {})
    if not isinstance(data, Mapping):
        raise place.error("data", f"default data is a map, not {data!r}")
    steps = source.get("steps")
    if not isinstance(steps, list | tuple) or not steps:
        raise place.error("steps", "a task needs a list of at least one step")
    place = replace(place, retry=_retry(place, source, None))
    ignore = _flag(place, source, "ignoreError", default=False)
    parsed = tuple(_step(replace(place, step=number), step, ignore=ignore) for number, step in enumerate(steps))
    return Definition(name, parsed, data, source)


def _step(place: _Place, raw: Any, *, ignore: bool) -> Step:
    source = {"method": raw} if isinstance(raw, str) else raw
    if not isinstance(source, Mapping):
        raise place.error("step", f"a step is a method's name or a map, not {raw!r}")
    _only(place, source, _STEP_FIELDS)
    return Step(
        method=_checked(place, source),
        error=_sub_step(place, source, "error"),
        reverse=_sub_step(place, source, "reverse"),
        ignore_error=_flag(place, source, "ignoreError", default=ignore),
    )


def _sub_step(place: _Place, source: Mapping[str, Any], field: str) -> Call | None:
    if field not in source:
        return None
    inner = _named(place, source, field)
    place = place.within(field)
    _only(place, inner, _CALL_FIELDS | {"check"})
    return _checked(place, inner)


def _checked(place: _Place, source: Mapping[str, Any]) -> Call:
    call = _call(place, source)
    if "check" not in source:
        return call
    if call.retry is None:
        raise place.error("check", "a check is made before a retry: set retry: true beside it")
    inner = _named(place, source, "check")
    within = place.within("check")
    _only(within, inner, _CALL_FIELDS)
    return replace(call, check=_call(within, inner))


def _named(place: _Place, source: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    raw = source[field]
    inner = {"method": raw} if isinstance(raw, str) else raw
    if not isinstance(inner, Mapping):
        raise place.error(field, f"is a method's name or a map with its own method, not {raw!r}")
    return inner


def _call(place: _Place, source: Mapping[str, Any]) -> Call:
    method = source.get("method")
    if not isinstance(method, str) or not method.strip():
        raise place.error("method", f"is the name of a method, not {method!r}")
    return Call(
        method=method,
        input=_map(place, source, "input"),
        output=_map(place, source, "output"),
        retry=_retry(place, source, place.retry),
        timeout_seconds=_span(place, "timeout", source["timeout"]) if "timeout" in source else None,
    )


def _map(place: _Place, source: Mapping[str, Any], field: str) -> Mapping[str, str] | None:
    raw = source.get(field)
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise place.error(field, f"is a map of property paths, not {raw!r}")
    for there, here in raw.items():
        for path in (there, here):
            if not isinstance(path, str):
                raise place.error(field, f"maps paths to paths: {path!r} is not a string")
            try:
                paths.parse(path)
            except ValueError as error:
                raise place.error(field, str(error)) from None
        if paths.parse(here)[0] == SESSION:
            raise place.error(field, "the session cannot be written: it is passed to every call as it is")
    return dict(raw)


def _retry(place: _Place, source: Mapping[str, Any], inherited: Retry | None) -> Retry | None:
    raw = source.get("retry")
    if raw is None:
        return inherited
    if isinstance(raw, bool):
        return (inherited or DEFAULT_RETRY) if raw else None
    if not isinstance(raw, Mapping):
        raise place.error("retry", f"is true, false or a map of retries and delays, not {raw!r}")
    _only(place.within("retry"), raw, _RETRY_FIELDS)
    delays = raw.get("delays", list(DEFAULT_RETRY.delays_seconds))
    if not isinstance(delays, list | tuple) or not delays:
        raise place.error("retry.delays", "is a list of spans of time such as ['5s', '1m']")
    spans = tuple(_span(place, "retry.delays", delay) for delay in delays)
    retries = raw.get("retries", len(spans))
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 1:
        raise place.error("retry.retries", f"is a whole number of at least 1, not {retries!r}")
    return Retry(retries, spans)


def _span(place: _Place, field: str, raw: Any) -> float:
    try:
        return parse_seconds(raw)
    except ValueError as error:
        raise place.error(field, str(error)) from None


def _flag(place: _Place, source: Mapping[str, Any], field: str, *, default: bool) -> bool:
    raw = source.get(field, default)
    if not isinstance(raw, bool):
        raise place.error(field, f"is true or false, not {raw!r}")
    return raw


def _only(place: _Place, source: Mapping[str, Any], known: set[str]) -> None:
    for field in source:
        if field not in known:
            raise place.error(str(field), f"is not a field here; there are {', '.join(sorted(known))}")


def _json(place: _Place, source: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = as_stored(source)
    except ValueError as error:
        raise place.error("definition", f"is stored as JSON, and this is not: {error}") from None
    return copied
