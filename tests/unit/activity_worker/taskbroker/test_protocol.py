"""The protocol's messages: against protoc, against the bytes of another encoder, and in both directions."""

from importlib.resources import files
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from activity_worker.taskbroker import protocol
from activity_worker.taskbroker.protocol.activation import (
    Activation,
    ActivationError,
    OnAttemptsExceeded,
    RetryState,
    message_of,
    parse_activation,
    parse_message,
)
from activity_worker.taskbroker.protocol.proto_parser import ProtoSyntaxError, parse_proto

HEAD = 'syntax = "proto3"; package a.b;'

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
SPANS = st.none() | st.integers(0, 2**64 - 1)
RETRIES = st.builds(
    RetryState,
    attempts=st.integers(0, 2**32 - 1),
    max_attempts=st.integers(0, 2**32 - 1),
    on_attempts_exceeded=st.sampled_from(OnAttemptsExceeded),
    at_most_once=st.booleans(),
    delay_on_retry=SPANS,
)
ACTIVATIONS = st.builds(
    Activation,
    id=TEXTS,
    namespace=TEXTS,
    taskname=TEXTS,
    parameters=st.binary(max_size=20),
    parameters_json=TEXTS,
    headers=st.dictionaries(TEXTS, TEXTS, max_size=3),
    # Milliseconds: a float has room for them in every year that a clock may show.
    received_at=st.none() | st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000),
    retry=st.none() | RETRIES,
    processing_deadline_duration=st.integers(0, 2**64 - 1),
    expires=SPANS,
    delay=SPANS,
    application=st.none() | TEXTS,
)


@pytest.mark.parametrize(
    "name", ["taskbroker.proto", "producer.proto", "backlog.proto", "exchange.proto", "workers.proto"]
)
def test_parser_describes_a_file_as_protoc_does(tmp_path: Path, name: str) -> None:
    folder, out = files(protocol), tmp_path / "out"
    source = folder.joinpath(name)
    known = files("grpc_tools").joinpath("_proto")
    arguments = ["protoc", f"-I{folder}", f"-I{known}", f"--descriptor_set_out={out}", str(source)]
    assert protoc.main(arguments) == 0

    (theirs,) = FileDescriptorSet.FromString(out.read_bytes()).file
    assert str(parse_proto(name, source.read_text(encoding="utf-8"))).splitlines() == str(theirs).splitlines()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('syntax = "proto2"; package a;', "line 1: expected '\"proto3\"', not '\"proto2\"'"),
        (f"{HEAD}\noption java_package = 1;", "line 2: 'option' is none of import, message, enum, service"),
        (f"{HEAD} message A {{ oneof b {{ }} }}", "line 1: expected '=', not '{'"),
        (f"{HEAD} message A {{ Missing b = 1; }}", "the type Missing is not defined"),
        (f"{HEAD} message A {{ string b = c; }}", "line 1: expected a number, not 'c'"),
        (f"{HEAD} message A {{ map<string, Missing> b = 1; }}", "the map b: Missing is none of string,"),
        (f"{HEAD} message A {{ string b = 1;", "the file ends too early"),
        (f"{HEAD} message A {{ string b = 1 + 1; }}", "line 1: '+' is not read here"),
        (f"{HEAD} service A {{ rpc B (stream C) returns (D) {{}} }}", "expected ')', not 'C'"),
    ],
)
def test_parser_refuses_what_it_does_not_read(text: str, message: str) -> None:
    with pytest.raises(ProtoSyntaxError) as raised:
        parse_proto("x.proto", text)
    assert message in str(raised.value)


@given(ACTIVATIONS)
def test_activation_survives_the_wire(activation: Activation) -> None:
    assert parse_activation(message_of(activation).SerializeToString()) == activation


def test_activation_is_read_from_bytes_written_by_hand() -> None:
    # Each field as its tag (number * 8 + kind: 0 a number, 2 bytes with their length) and its value.
    data = bytes([1 * 8 + 2, 1]) + b"i"
    data += bytes([2 * 8 + 2, 1]) + b"n" + bytes([3 * 8 + 2, 1]) + b"t"
    data += bytes([4 * 8 + 2, 2]) + b"{}" + bytes([13 * 8 + 2, 1]) + b"\x80"
    data += bytes([5 * 8 + 2, 6, 10, 1]) + b"k" + bytes([18, 1]) + b"v"
    data += bytes([6 * 8 + 2, 2, 8, 5])
    data += bytes([7 * 8 + 2, 10, 8, 1, 16, 3, 24, 2, 32, 1, 40, 7])
    data += bytes([8 * 8, 30, 9 * 8, 60, 11 * 8, 90, 12 * 8 + 2, 1]) + b"a"

    retry = RetryState(1, 3, OnAttemptsExceeded.DEADLETTER, at_most_once=True, delay_on_retry=7)
    assert parse_activation(data) == Activation(
        "i", "n", "t", b"\x80", "{}", {"k": "v"}, 5.0, retry, 30, expires=60, delay=90, application="a"
    )


def test_fields_of_a_later_protocol_are_kept_and_harmless() -> None:
    later = message_of(Activation("i", "n", "t")).SerializeToString() + bytes([15 * 8, 1])
    later += bytes([7 * 8 + 2, 2, 24, 9])
    assert parse_message(later).SerializeToString().count(bytes([15 * 8, 1])) == 1
    assert parse_activation(later).retry == RetryState(on_attempts_exceeded=OnAttemptsExceeded.UNSPECIFIED)


def test_bytes_that_are_no_activation_are_refused() -> None:
    with pytest.raises(ActivationError, match="not a TaskActivation"):
        parse_activation(b"\xff\xff")
