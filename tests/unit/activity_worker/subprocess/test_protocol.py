"""Messages between a supervisor and a handler's process, decoded from a stream split at any point."""

import pytest

from activity_worker.subprocess.protocol import HEADER, MAX_FRAME_BYTES, FrameDecoder, FrameError, Message, encode

MESSAGES: list[Message] = [{"kind": "ready"}, {"kind": "done", "id": 1, "output": "ä" * 300}, {"kind": "stop"}]
STREAM = b"".join(encode(message) for message in MESSAGES)


@pytest.mark.parametrize("size", [1, 3, 7, 100, len(STREAM)])
def test_messages_are_decoded_from_pieces_of_any_size(size: int) -> None:
    decoder = FrameDecoder()

    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]

    assert [message for piece in pieces for message in decoder.feed(piece)] == MESSAGES


def test_messages_before_an_invalid_one_are_decoded() -> None:
    messages = FrameDecoder().feed(encode(MESSAGES[0]) + HEADER.pack(3) + b"[1]")

    assert next(messages) == MESSAGES[0]
    with pytest.raises(FrameError, match="not a JSON object"):
        next(messages)


@pytest.mark.parametrize("body", [b"\xff", b"{"])
def test_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError, match="not JSON"):
        list(FrameDecoder().feed(HEADER.pack(len(body)) + body))


def test_length_above_the_limit_is_refused_before_the_body() -> None:
    with pytest.raises(FrameError, match="the limit is"):
        list(FrameDecoder().feed(HEADER.pack(MAX_FRAME_BYTES + 1)))
