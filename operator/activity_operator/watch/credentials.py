"""What kopf is told of who it is: credentials read anew whenever it asks, and no faster than that can help.

kopf asks again at once when a call was refused (401), and with the answer it tries at once: with a token that stays
refused (rotated late, or its pod is gone) it went round as fast as the processor would, a whole core for nothing.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from itertools import chain, repeat

from activity_operator.cluster.kube import ApiServerAccess, Credentials, read_access

#: Seconds until credentials that were just refused are given again; meanwhile others are looked for every so often.
PAUSES = (1.0, 2.0, 5.0, 10.0)
LOOK_SECONDS = 1.0
#: Seconds after which a login was no refused one.
GOOD_SECONDS = 60.0

log = logging.getLogger(__name__)


class CredentialsReader:
    """Called for credentials; those that are new are given at once."""

    def __init__(self, load: Credentials) -> None:
        self._load = load
        self._given: ApiServerAccess | None = None
        self._given_at = -math.inf
        self._pauses = _pauses()

    async def __call__(self) -> ApiServerAccess:
        """Return the credentials. Raises what the loader raises, if that is the first time."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._given_at >= GOOD_SECONDS:
            self._pauses = _pauses()
            found = await self._read()
        else:
            found = await self._read_until_changed(loop.time() + next(self._pauses))
        self._given, self._given_at = found, loop.time()
        return found

    async def _read_until_changed(self, ends: float) -> ApiServerAccess:
        """Return other credentials than the last as soon as there are any, or the same in the end."""
        loop = asyncio.get_running_loop()
        while (found := await self._read()) == self._given:
            if loop.time() >= ends:
                return found
            await asyncio.sleep(min(LOOK_SECONDS, ends - loop.time()))
        self._pauses = _pauses()
        return found

    async def _read(self) -> ApiServerAccess:
        try:
            return await read_access(self._load)
        except Exception as error:
            if self._given is None:
                raise
            # A file being written, say; its text is nothing for a log. kopf would wait for a minute, and see nothing.
            log.warning("the credentials cannot be read again: %s", type(error).__name__)
            return self._given


def _pauses() -> Iterator[float]:
    return chain(PAUSES, repeat(PAUSES[-1]))
