"""PURE: a task activation as a value, and as the bytes of its message."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from google.protobuf.message import DecodeError

from activity_worker.taskbroker.protocol.messages import TaskActivation

_NANO: Final = 1_000_000_000


class OnAttemptsExceeded(IntEnum):
    """What a broker does with a task that failed and is not tried again, by its number on the wire."""

    UNSPECIFIED = 0
    DISCARD = 1
    DEADLETTER = 2


class ActivationError(ValueError):
    """The bytes are not a task activation."""


@dataclass(frozen=True, slots=True)
class RetryState:
    """How a task is tried again. `attempts` have ended, of `max_attempts`; the delay is in seconds."""

    attempts: int = 0
    max_attempts: int = 0
    on_attempts_exceeded: OnAttemptsExceeded = OnAttemptsExceeded.UNSPECIFIED
    at_most_once: bool = False
    delay_on_retry: int | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """One task. Durations are in seconds, `received_at` is in Unix seconds; None where the message has no value.

    `parameters` are the bytes of `encode_parameters`; `parameters_json` is the field that they replaced.
    """

    id: str
    namespace: str
    taskname: str
    parameters: bytes = field(default=b"", repr=False)
    parameters_json: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    received_at: float | None = None
    retry: RetryState | None = None
    processing_deadline_duration: int = 0
    expires: int | None = None
    delay: int | None = None
    application: str | None = None


def parse_activation(data: bytes) -> Activation:
    """Return the activation of a serialized message. Raises ActivationError."""
    return activation_of(parse_message(data))


def parse_message(data: bytes) -> Any:
    """Return the message itself, which keeps fields that this version does not know. Raises ActivationError."""
    message = TaskActivation()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise ActivationError("the bytes are not a TaskActivation") from None
    return message


def activation_of(message: Any) -> Activation:
    """Return the activation of a message."""
    return Activation(
        id=message.id,
        namespace=message.namespace,
        taskname=message.taskname,
        parameters=message.parameters_bytes,
        parameters_json=message.parameters,
        headers=dict(message.headers),
        received_at=_seconds(message.received_at) if message.HasField("received_at") else None,
        retry=_retry_of(message.retry_state) if message.HasField("retry_state") else None,
        processing_deadline_duration=message.processing_deadline_duration,
        expires=_optional(message, "expires"),
        delay=_optional(message, "delay"),
        application=_optional(message, "application"),
    )


def message_of(activation: Activation) -> Any:
    """Return the message of an activation."""
    message = TaskActivation(
        id=activation.id,
        namespace=activation.namespace,
        taskname=activation.taskname,
        parameters=activation.parameters_json,
        parameters_bytes=activation.parameters,
        headers=dict(activation.headers),
        processing_deadline_duration=activation.processing_deadline_duration,
    )
    for name in ("expires", "delay", "application"):
        if (value := getattr(activation, name)) is not None:
            setattr(message, name, value)
    if activation.received_at is not None:
        set_received_at(message, activation.received_at)
    if (retry := activation.retry) is not None:
        message.retry_state.attempts = retry.attempts
        message.retry_state.max_attempts = retry.max_attempts
        message.retry_state.on_attempts_exceeded = int(retry.on_attempts_exceeded)
        message.retry_state.at_most_once = retry.at_most_once
        if retry.delay_on_retry is not None:
            message.retry_state.delay_on_retry = retry.delay_on_retry
    return message


def set_received_at(message: Any, seconds: float) -> None:
    """Write a time in Unix seconds into a message."""
    whole = math.floor(seconds)
    # The fraction on its own: a float has no room for today's time in nanoseconds.
    more, message.received_at.nanos = divmod(round((seconds - whole) * _NANO), _NANO)
    message.received_at.seconds = whole + more


def _seconds(timestamp: Any) -> float:
    # Whole numbers as far as possible: their quotient is the float that was written.
    return float((timestamp.seconds * _NANO + timestamp.nanos) / _NANO)


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _retry_of(message: Any) -> RetryState:
    known = {value.value for value in OnAttemptsExceeded}
    number = message.on_attempts_exceeded
    return RetryState(
        attempts=message.attempts,
        max_attempts=message.max_attempts,
        # A number of a later version of the protocol is treated like no number.
        on_attempts_exceeded=OnAttemptsExceeded(number if number in known else 0),
        at_most_once=message.at_most_once,
        delay_on_retry=_optional(message, "delay_on_retry"),
    )
