"""PURE: a `.proto` file as protobuf's own description of a file, without a compiler.

Reads the part of proto3 that this project's files use: a package, imports, messages without nesting, fields that are
optional, repeated or maps, enums, services with unary calls, comments, and the option `deprecated`. Anything else
raises ProtoSyntaxError, and is never passed over.
"""

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

_TOKEN: Final = re.compile(r'\s+|//[^\n]*|(?P<token>[A-Za-z_][\w.]*|\d+|"[^"\n]*"|[{}()\[\]<>=;,])')
_FIELD: Final = FieldDescriptorProto
_SCALARS: Final = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "bool": _FIELD.TYPE_BOOL,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
}


class ProtoSyntaxError(ValueError):
    """The file is not in the part of proto3 that is read here; the message has the line."""


def parse_proto(name: str, text: str) -> FileDescriptorProto:
    """Return the description of a file with this name and text. Types of other packages are written in full."""
    return _Parser(name, text).parse()


class _Parser:
    def __init__(self, name: str, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._file = FileDescriptorProto(name=name, syntax="proto3")

    def parse(self) -> FileDescriptorProto:
        readers = {"import": self._import, "message": self._message, "enum": self._enum, "service": self._service}
        for token in ("syntax", "=", '"proto3"', ";", "package"):
            self._expect(token)
        self._file.package = self._take()
        self._expect(";")
        while self._next < len(self._tokens):
            word = self._take()
            if word not in readers:
                raise self._error(f"{word!r} is none of {', '.join(readers)}")
            readers[word]()
        self._resolve()
        return self._file

    def _import(self) -> None:
        self._file.dependency.append(self._take().strip('"'))
        self._expect(";")

    def _message(self) -> None:
        message = self._file.message_type.add(name=self._take())
        self._expect("{")
        while not self._skip("}"):
            self._field(message)
        # As protoc does: an optional field is the only one of a oneof, and these come in the order of the fields.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _field(self, message: DescriptorProto) -> None:
        label = _FIELD.LABEL_REPEATED if self._skip("repeated") else _FIELD.LABEL_OPTIONAL
        optional = self._skip("optional")
        kind = self._take()
        entry = self._map_types() if kind == "map" else None
        field = message.field.add(label=label, name=self._take())
        self._expect("=")
        field.number = self._number()
        field.json_name = _json_name(field.name)
        if optional:
            field.proto3_optional = True
        if entry is None:
            _set_type(field, kind)
        else:
            field.label = _FIELD.LABEL_REPEATED
            field.type_name = f".{self._file.package}.{message.name}.{_add_entry(message, field.name, entry)}"
            field.type = _FIELD.TYPE_MESSAGE
        if self._skip("["):
            for token in ("deprecated", "=", "true", "]"):
                self._expect(token)
            field.options.deprecated = True
        self._expect(";")

    def _map_types(self) -> tuple[str, str]:
        self._expect("<")
        key = self._take()
        self._expect(",")
        value = self._take()
        self._expect(">")
        return key, value

    def _enum(self) -> None:
        enum: EnumDescriptorProto = self._file.enum_type.add(name=self._take())
        self._expect("{")
        while not self._skip("}"):
            value = enum.value.add(name=self._take())
            self._expect("=")
            value.number = self._number()
            self._expect(";")

    def _service(self) -> None:
        service: ServiceDescriptorProto = self._file.service.add(name=self._take())
        self._expect("{")
        while not self._skip("}"):
            self._expect("rpc")
            method = service.method.add(name=self._take())
            self._expect("(")
            method.input_type = self._take()
            for token in (")", "returns", "("):
                self._expect(token)
            method.output_type = self._take()
            for token in (")", "{", "}"):
                self._expect(token)
            # protoc writes empty options for a call with braces.
            method.options.SetInParent()

    def _resolve(self) -> None:
        """Write each type's full name; a name without a dot is one of this package."""
        enums = {enum.name for enum in self._file.enum_type}
        known = enums | {message.name for message in self._file.message_type}
        for field in (field for message in self._file.message_type for field in message.field):
            if not field.HasField("type"):
                field.type = _FIELD.TYPE_ENUM if field.type_name in enums else _FIELD.TYPE_MESSAGE
                field.type_name = self._full(field.type_name, known)
        for method in (method for service in self._file.service for method in service.method):
            method.input_type = self._full(method.input_type, known)
            method.output_type = self._full(method.output_type, known)

    def _full(self, name: str, known: set[str]) -> str:
        if "." in name:
            return f".{name}"
        if name not in known:
            raise ProtoSyntaxError(f"{self._file.name}: the type {name} is not defined")
        return f".{self._file.package}.{name}"

    def _take(self) -> str:
        if self._next == len(self._tokens):
            raise ProtoSyntaxError(f"{self._file.name}: the file ends too early")
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _skip(self, token: str) -> bool:
        found = self._next < len(self._tokens) and self._tokens[self._next][1] == token
        self._next += found
        return found

    def _expect(self, token: str) -> None:
        if (found := self._take()) != token:
            raise self._error(f"expected {token!r}, not {found!r}")

    def _number(self) -> int:
        if not (found := self._take()).isdecimal():
            raise self._error(f"expected a number, not {found!r}")
        return int(found)

    def _error(self, text: str) -> ProtoSyntaxError:
        return ProtoSyntaxError(f"{self._file.name}, line {self._tokens[self._next - 1][0]}: {text}")


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Yield each token with its line."""
    at = 0
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        found = _TOKEN.match(text, at)
        if found is None:
            raise ProtoSyntaxError(f"line {line}: {text[at]!r} is not read here")
        if token := found["token"]:
            yield line, token
        at = found.end()


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind


def _add_entry(message: DescriptorProto, name: str, kinds: tuple[str, str]) -> str:
    """Add the message that a map's entries have on the wire, and return its name."""
    camel = _json_name(name)
    entry = message.nested_type.add(name=f"{camel[0].upper()}{camel[1:]}Entry")
    entry.options.map_entry = True
    for number, (part, kind) in enumerate(zip(("key", "value"), kinds, strict=True), 1):
        if kind not in _SCALARS:
            raise ProtoSyntaxError(f"the map {name}: {kind} is none of {', '.join(_SCALARS)}")
        field = entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL, json_name=part)
        field.type = _SCALARS[kind]
    return entry.name


def _json_name(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)
