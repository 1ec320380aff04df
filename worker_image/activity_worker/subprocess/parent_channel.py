"""The supervisor's end of a child's socket: messages out, messages in their order, and the end.

A protocol and not streams: a no-op task is three short messages in each other's wake, and with a stream reader, a queue
and a task between them and their reader they cost more than the task's two calls to the service.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from activity_worker.subprocess.protocol import FrameDecoder, FrameError, Message, encode

#: Messages that are read ahead; a child that sends more blocks on its own socket.
READ_AHEAD = 64


class ParentChannel(asyncio.Protocol):
    """Made by the event loop, for one connected socket. `on_end` is called when no further message can arrive."""

    def __init__(self, on_end: Callable[[], object]) -> None:
        self._on_end = on_end
        self._decoder = FrameDecoder()
        self._inbox: deque[Message] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()

    @property
    def ended(self) -> bool:
        """Whether no further message can arrive; those that have arrived can still be received."""
        return self._over.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Decode the data; a malformed message ends the channel."""
        if self.ended:
            return
        try:
            self._inbox.extend(self._decoder.feed(data))
        except FrameError:
            self.end()
            return
        if len(self._inbox) > READ_AHEAD and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        """End the channel: a child that closes its end can do no more work."""
        self.end()

    def connection_lost(self, _: Exception | None) -> None:
        """End the channel and release its senders."""
        self.end()
        self.resume_writing()
        _wake(self._closed)

    def pause_writing(self) -> None:
        """Let senders wait until the child has read."""
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Release the waiting senders."""
        _wake(self._writer)
        self._writer = None

    async def send(self, message: Message) -> None:
        """Send one message; after the end of the channel it is dropped. Raises `FrameError`."""
        frame = encode(message)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)
        if self._writer is not None:
            await asyncio.shield(self._writer)

    async def receive(self) -> Message | None:
        """Return the next message; None, from then on, after the last. One caller at a time."""
        while not self._inbox:
            if self.ended:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._inbox.popleft()
        if self._paused and not self._inbox and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return message

    def end(self) -> None:
        """Expect no more messages."""
        if not self.ended:
            self._over.set_result(None)
            _wake(self._reader)
            self._on_end()

    async def wait_ended(self) -> None:
        """Wait until no further message can arrive."""
        await asyncio.shield(self._over)

    async def close(self) -> None:
        """Close the socket."""
        self.end()
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._closed)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
