"""What the clients of AWS's task services have in common: one pool of connections, and long polls.

A service holds a poll for up to a minute, and a client that hangs up early can lose a task that was already handed
over. So a poll's read time-out has a least value, and the other calls end sooner.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar, Final, Self

from activity_worker.wire.aws import AwsJsonCaller

#: For every call that is not a long poll.
CALL_TIMEOUT_SECONDS: Final = 20.0
#: What the read time-out of polls has by default beyond the least value.
SPARE_SECONDS: Final = 5.0


class TaskServiceClient:
    """A task service over one pool of connections. Make it with `open`, end it with `close`.

    Every method raises WireError (see `wire.errors` for its kinds) and tries once.
    """

    #: botocore's name of the service, and the target prefix of its operations.
    service: ClassVar[str]
    target_prefix: ClassVar[str]
    #: The least read time-out of polls for which the service asks.
    min_read_timeout_seconds: ClassVar[float]

    def __init__(
        self, caller: AwsJsonCaller, *, read_timeout_seconds: float | None = None, max_connections: int = 0
    ) -> None:
        least = self.min_read_timeout_seconds
        if read_timeout_seconds is not None and read_timeout_seconds < least:
            raise ValueError(
                f"read_timeout_seconds is {read_timeout_seconds:g}; the service holds a poll for 60 s, "
                f"use {least:g} or more"
            )
        self._caller = caller
        self._read_timeout_seconds = least + SPARE_SECONDS if read_timeout_seconds is None else read_timeout_seconds
        self._polls: AbstractAsyncContextManager[Any] = (
            asyncio.Semaphore(max_connections) if max_connections else nullcontext()
        )

    @classmethod
    def open(
        cls,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        role_arn: str | None = None,
        external_id: str | None = None,
        session: Any = None,
        read_timeout_seconds: float | None = None,
        max_connections: int = 0,
    ) -> Self:
        """Return a client; no connection is made and no credentials are looked up before the first call.

        What is not given comes from the environment or the profile as in every AWS SDK. `role_arn` is assumed (with
        `external_id`) by whatever credentials the chain finds. `session` is a botocore session to use instead of a new
        one. `read_timeout_seconds` is for polls: at least `min_read_timeout_seconds`, by default 5 s more.
        `max_connections` bounds the open polls (0: unbounded); other calls never wait for a connection. Blocks for
        about 0.1 s.
        """
        caller = AwsJsonCaller.open(
            cls.service,
            target_prefix=cls.target_prefix,
            region=region,
            endpoint_url=endpoint_url,
            profile=profile,
            role_arn=role_arn,
            external_id=external_id,
            session=session,
        )
        return cls(caller, read_timeout_seconds=read_timeout_seconds, max_connections=max_connections)

    @property
    def endpoint_url(self) -> str:
        """Where the calls go."""
        return self._caller.endpoint.url

    @property
    def region(self) -> str:
        """The region for which calls are signed."""
        return self._caller.endpoint.region

    async def close(self) -> None:
        """Close the connections. Await open polls first: cutting one can lose a task."""
        await self._caller.close()

    async def _poll(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Make a long poll; wait for a connection first if they are bounded."""
        async with self._polls:
            return await self._caller.call(operation, parameters, timeout_seconds=self._read_timeout_seconds)

    async def _send(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Make a call that is answered at once; its task token is shown nowhere."""
        return await self._caller.call(
            operation, parameters, timeout_seconds=CALL_TIMEOUT_SECONDS, private=("taskToken",)
        )
