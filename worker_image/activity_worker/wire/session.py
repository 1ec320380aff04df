"""botocore sessions: one of its own for a client, or one that all clients of a process share.

A session keeps every service model that it has loaded: about 8 MB for the security token service. A process with many
clients, such as the operator with a role for each namespace, therefore shares one session.
"""

import functools
import threading
from typing import Any

#: botocore's sessions are not safe for threads; its clients are.
_creating = threading.Lock()


def new_session(profile: str | None = None) -> Any:
    """Return a session of the named profile, or of the environment's."""
    import botocore.session  # noqa: PLC0415 - 0.1 s, and the usual endpoint does without it

    return botocore.session.Session(profile=profile)


@functools.cache
def shared_session() -> Any:
    """Return the session that the clients of this process share: of the environment's profile, read once."""
    return new_session()


def create_client(session: Any, service: str, region: str, **options: Any) -> Any:
    """Return a botocore client. Takes about 0.1 s; clients of several threads are created one after the other."""
    with _creating:
        return session.create_client(service, region_name=region, **options)
