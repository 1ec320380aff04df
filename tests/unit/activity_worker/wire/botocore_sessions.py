"""Sessions of botocore that read its data files once a process, which takes most of a session's time."""

from botocore.loaders import create_loader
from botocore.session import Session

_LOADER = create_loader()


def new_session() -> Session:
    """Return a session without settings of its own; it shares only the parsed files of services and partitions."""
    session = Session()
    session.register_component("data_loader", _LOADER)
    return session
