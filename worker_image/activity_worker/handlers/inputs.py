"""PURE: the input of a task as the type of the handler's annotation.

A converter is made once, at the worker's start, and called for each task. It reads plain JSON values: dataclasses,
TypedDicts, NamedTuples, Enums, `Literal`, unions, containers, and the types of the standard library that JSON writes as
text. Pydantic reads its own models, dataclasses and constrained types; without such a type pydantic is not imported.

An input that does not fit raises `InputInvalidError`: each problem with its path and its rule, never with the value.
"""

import dataclasses
import json
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NoReturn

from activity_worker.errors import HandlerSignatureError, InputInvalidError
from activity_worker.handlers.scalars import SCALARS, Mismatch, enum_converter

#: `converter(value)`: a JSON value in, the annotation's type out; raises `Mismatch`.
Converter = Callable[[Any], Any]
#: `convert(value, text)`: the same for a whole input; `text` is the input's JSON text if it is known, for pydantic.
InputConverter = Callable[[Any, str | None], Any]

_ANY: Final[tuple[Any, ...]] = (Any, object)
_LISTS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Iterable: list,
    abc.Collection: list,
    abc.Set: set,
}
_MAPPINGS: Final = frozenset({dict, abc.Mapping, abc.MutableMapping})
_UNWRAPPED: Final = tuple(
    getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly", "Final") if hasattr(typing, name)
)
#: Problems that an error names, and how long a key in a path may be.
_MOST_PROBLEMS: Final = 10
_MOST_KEY_CHARACTERS: Final = 64


def input_converter(annotation: Any, where: str) -> InputConverter:
    """Return the converter of inputs for an annotation; raises `HandlerSignatureError`, which begins with `where`."""
    if annotation in _ANY:
        return lambda value, _: value
    if _is_pydantic(annotation):
        return _pydantic_input(annotation, where)
    convert = _Compiler(where).converter(annotation)

    def read(value: Any, _: str | None) -> Any:
        try:
            return convert(value)
        except Mismatch as error:
            raise _invalid(error.problems) from None

    return read


def _invalid(problems: Iterable[tuple[tuple[str | int, ...], str]]) -> InputInvalidError:
    named = [f"{_path(path)}: {rule}" for path, rule in problems]
    more = [f"and {len(named) - _MOST_PROBLEMS} more"] if len(named) > _MOST_PROBLEMS else []
    return InputInvalidError("; ".join(named[:_MOST_PROBLEMS] + more))


def _path(path: tuple[str | int, ...]) -> str:
    text = "input"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part[:_MOST_KEY_CHARACTERS]}"
        else:
            text += f"[{json.dumps(part[:_MOST_KEY_CHARACTERS])}]"
    return text


class _Compiler:
    """Makes the converters of one annotation. A type that contains itself gets one converter."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._known: dict[Any, Converter] = {}

    def converter(self, annotation: Any) -> Converter:
        """Return the converter for `annotation`."""
        if isinstance(annotation, abc.Hashable) and annotation in SCALARS:
            return SCALARS[annotation]
        if annotation in _ANY:
            return lambda value: value
        if _is_pydantic(annotation):
            return _pydantic_part(annotation, self._where)
        if isinstance(annotation, str | typing.ForwardRef | typing.TypeVar):
            self._refuse(annotation)
        return self._generic(annotation, typing.get_origin(annotation), typing.get_args(annotation))

    def _generic(self, annotation: Any, origin: Any, args: tuple[Any, ...]) -> Converter:
        if origin is Annotated or origin in _UNWRAPPED:
            return self.converter(args[0])
        if origin is Literal:
            return _literal(args)
        if origin in {typing.Union, types.UnionType}:
            return self._union(args)
        if hasattr(annotation, "__supertype__"):
            return self.converter(annotation.__supertype__)
        if hasattr(annotation, "__value__"):
            return self.converter(annotation.__value__)
        base = origin or annotation
        if base is tuple:
            return self._tuple(args)
        if base in _LISTS:
            return _list(_LISTS[base], self.converter(args[0]) if args else _same)
        if base in _MAPPINGS:
            return self._mapping(args)
        if not isinstance(annotation, type):
            self._refuse(annotation)
        return self._class(annotation)

    def _class(self, annotation: type) -> Converter:
        if annotation in self._known:
            return self._known[annotation]
        # Found again while its own fields are read, in a type that contains itself.
        self._known[annotation] = lambda value: self._known[annotation](value)  # noqa: PLW0108 - another one by then
        self._known[annotation] = made = self._made(annotation)
        return made

    def _made(self, annotation: type) -> Converter:
        if dataclasses.is_dataclass(annotation):
            return self._dataclass(annotation)
        if typing.is_typeddict(annotation):
            return self._typed_dict(annotation)
        if issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults"):
            return self._named_tuple(annotation)
        convert = enum_converter(annotation)
        if convert is None:
            self._refuse(annotation)
        return convert

    def _dataclass(self, kind: type) -> Converter:
        hints = self._hints(kind)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        required = {
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        }
        return _object(kind, {field.name: self.converter(hints[field.name]) for field in fields}, required)

    def _named_tuple(self, kind: Any) -> Converter:
        hints = self._hints(kind)
        names = [name for name in kind._fields if name not in kind._field_defaults]
        return _object(kind, {name: self.converter(hints[name]) for name in kind._fields}, set(names))

    def _typed_dict(self, kind: Any) -> Converter:
        hints = self._hints(kind)
        required = {name for name, hint in hints.items() if _is_required(kind, name, hint)}
        convert = _object(dict, {name: self.converter(hint) for name, hint in hints.items()}, required)
        return lambda value: {**value, **convert(value)} if isinstance(value, dict) else convert(value)

    def _union(self, members: tuple[Any, ...]) -> Converter:
        plain = {member for member in members if member in {str, int, float, bool}}
        others = [self.converter(member) for member in members if member is not type(None)]
        optional = type(None) in members
        names = " or ".join(_name(member) for member in members)

        def convert(value: Any) -> Any:
            if (value is None and optional) or type(value) in plain:
                return value
            for member in others:
                try:
                    return member(value)
                except Mismatch:
                    if len(others) == 1:
                        raise
            raise Mismatch(f"expected {names}")

        return convert

    def _tuple(self, args: tuple[Any, ...]) -> Converter:
        if not args or (len(args) == 2 and args[1] is Ellipsis):
            return _list(tuple, self.converter(args[0]) if args else _same)
        members = [self.converter(member) for member in args]

        def convert(value: Any) -> Any:
            if not isinstance(value, list) or len(value) != len(members):
                raise Mismatch(f"expected a list of {len(members)}")
            return tuple(_each(enumerate(zip(members, value, strict=True)), lambda pair: pair[0](pair[1])))

        return convert

    def _mapping(self, args: tuple[Any, ...]) -> Converter:
        if args and args[0] not in {str, Any}:
            return self._mapping_with_keys(self.converter(args[0]), self.converter(args[1]))
        item = self.converter(args[1]) if args else _same

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise Mismatch("expected an object")
            return dict(zip(value, _each(value.items(), item), strict=True))

        return convert

    @staticmethod
    def _mapping_with_keys(key: Converter, item: Converter) -> Converter:
        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise Mismatch("expected an object")
            keys = _each(((name, name) for name in value), key)
            return dict(zip(keys, _each(value.items(), item), strict=True))

        return convert

    def _hints(self, kind: type) -> Mapping[str, Any]:
        try:
            return typing.get_type_hints(kind, include_extras=True)
        except Exception as error:
            raise HandlerSignatureError(f"{self._where}: the annotations of {kind.__name__}: {error}") from error

    def _refuse(self, annotation: Any) -> NoReturn:
        raise HandlerSignatureError(
            f"{self._where}: the type {_name(annotation)} cannot be read from JSON: use a dataclass, a TypedDict, a"
            " pydantic model or a type of the standard library, or dict for the input as it is"
        )


def _same(value: Any) -> Any:
    return value


def _each(pairs: Iterable[tuple[Any, Any]], convert: Converter) -> list[Any]:
    """Convert each value; raises `Mismatch` with the problems of all of them, each under its key."""
    made, problems = [], []
    for key, value in pairs:
        try:
            made.append(convert(value))
        except Mismatch as error:
            problems += [((key, *path), rule) for path, rule in error.problems]
    if problems:
        raise Mismatch(problems=problems)
    return made


def _list(kind: Callable[[list[Any]], Any], item: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise Mismatch("expected a list")
        made = _each(enumerate(value), item)
        try:
            return made if kind is list else kind(made)
        except TypeError:
            raise Mismatch("expected a list whose values can be members of a set") from None

    return convert


def _literal(values: tuple[Any, ...]) -> Converter:
    words = ", ".join(json.dumps(value, default=str) for value in values)

    def convert(value: Any) -> Any:
        for allowed in values:
            if type(allowed) is type(value) and allowed == value:
                return allowed
        raise Mismatch(f"expected one of {words}")

    return convert


def _object(kind: Callable[..., Any], fields: Mapping[str, Converter], required: set[str]) -> Converter:
    """Return a converter of objects: `kind(**fields)`. Fields that it does not know are left out."""
    name = getattr(kind, "__name__", str(kind))

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch("expected an object")
        made: dict[str, Any] = {}
        problems = []
        for field, member in fields.items():
            if field in value:
                try:
                    made[field] = member(value[field])
                except Mismatch as error:
                    problems += [((field, *path), rule) for path, rule in error.problems]
            elif field in required:
                problems.append(((field,), "required, but missing"))
        if problems:
            raise Mismatch(problems=problems)
        try:
            return kind(**made)
        except Exception as error:  # noqa: BLE001 - a check of the user's; its words may have the value
            raise Mismatch(f"{name} refused its fields with {type(error).__name__}") from None

    return convert


def _is_required(kind: Any, name: str, hint: Any) -> bool:
    # The class itself does not see `NotRequired` in a module whose annotations are strings.
    match typing.get_origin(hint):
        case typing.NotRequired:
            return False
        case typing.Required:
            return True
        case _:
            return name in kind.__required_keys__


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _is_pydantic(annotation: Any) -> bool:
    if typing.get_origin(annotation) is Annotated:
        inner, *metadata = typing.get_args(annotation)
        modules = {type(one).__module__.partition(".")[0] for one in metadata}
        return bool(modules & {"pydantic", "annotated_types"}) or _is_pydantic(inner)
    return isinstance(annotation, type) and (
        hasattr(annotation, "__pydantic_validator__") or hasattr(annotation, "__get_pydantic_core_schema__")
    )


#: Errors of pydantic whose words are the user's own, and so may have the value.
_USERS_WORDS: Final = frozenset({"value_error", "assertion_error"})


def _pydantic_input(annotation: Any, where: str) -> InputConverter:
    validate = _pydantic_validator(annotation, where)

    def read(value: Any, text: str | None) -> Any:
        try:
            return validate(json.dumps(value) if text is None else text)
        except Mismatch as error:
            raise _invalid(error.problems) from None

    return read


def _pydantic_part(annotation: Any, where: str) -> Converter:
    validate = _pydantic_validator(annotation, where)
    return lambda value: validate(json.dumps(value))


def _pydantic_validator(annotation: Any, where: str) -> Callable[[str], Any]:
    try:
        import pydantic  # noqa: PLC0415 - optional: only an annotation that needs it leads here
        from pydantic_core import PydanticCustomError, core_schema  # noqa: PLC0415, F401
    except ImportError as error:
        raise HandlerSignatureError(f"{where}: the annotation needs pydantic: pip install pydantic") from error
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except Exception as error:
        raise HandlerSignatureError(f"{where}: pydantic cannot read {_name(annotation)}: {error}") from error
    # JSON text, and not the parsed value: a strict model takes a date as text in JSON only.
    validate_json = adapter.validate_json

    def validate(text: str) -> Any:
        try:
            return validate_json(text)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise Mismatch(problems=[(tuple(one["loc"]), _rule(one["type"], one["msg"])) for one in found]) from None

    return validate


def _rule(kind: str, words: str) -> str:
    return "refused by a validator of the model" if kind in _USERS_WORDS else words
