"""kopf's credentials: re-read at each login, with a rate limit.

After a refused call (401) kopf logs in again and repeats the call, both at once. With a token that stays refused (it
was rotated late, or its pod is gone) this loop would use a whole core.
"""

import asyncio
import logging
import math
import random

from activity_operator import backoff
from activity_operator.cluster.kube import ApiServerAccess, Credentials, read_access

#: First and longest wait until credentials that were just refused are returned again, and the seconds between two reads
#: in that time.
RETRY_FIRST_SECONDS = 1.0
RETRY_CAP_SECONDS = 10.0
READ_AGAIN_SECONDS = 1.0
#: Seconds after which a new login does not mean that the last credentials were refused.
ACCEPTED_SECONDS = 60.0

log = logging.getLogger(__name__)


class CredentialsReader:
    """Returns credentials when called: new ones at once, unchanged ones after a pause."""

    def __init__(self, load: Credentials, jitter: backoff.Jitter = random.random) -> None:
        self._load = load
        self._jitter = jitter
        self._given: ApiServerAccess | None = None
        self._given_at = -math.inf
        self._refusals = 0

    async def __call__(self) -> ApiServerAccess:
        """Return the credentials. Raises the loader's exception if no credentials have been read before."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._given_at >= ACCEPTED_SECONDS:
            self._refusals = 0
            found = await self._read()
        else:
            self._refusals += 1
            wait = backoff.capped(self._refusals, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._jitter)
            found = await self._read_until_changed(loop.time() + wait)
        self._given, self._given_at = found, loop.time()
        return found

    async def _read_until_changed(self, ends: float) -> ApiServerAccess:
        """Return new credentials as soon as there are any, or at `ends` (the loop's time) the last ones."""
        loop = asyncio.get_running_loop()
        while (found := await self._read()) == self._given:
            if loop.time() >= ends:
                return found
            await asyncio.sleep(min(READ_AGAIN_SECONDS, ends - loop.time()))
        self._refusals = 0
        return found

    async def _read(self) -> ApiServerAccess:
        try:
            return await read_access(self._load)
        except Exception as error:
            if self._given is None:
                raise
            # The file may be in the middle of a write; the error's text could contain a secret. An exception here would
            # stop kopf's watches for a minute.
            log.warning("the credentials cannot be read again: %s", type(error).__name__)
            return self._given
