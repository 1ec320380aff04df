"""Python environments beside the development environment: a handler's with old releases, and the slim image's.

Renew the lock of the first with `uv pip compile --universal --python-version 3.11 --generate-hashes -o
user_libraries.lock user_libraries.in`; `make lock` renews the other one.
"""

import sys
from pathlib import Path

from tests.environments import Environment

USER_LIBRARIES = Environment(
    "user_libraries", Path(__file__).with_name("user_libraries.lock"), sys.executable, python_version=sys.version
)
#: What the supervisor of the slim image has: no library of durable tasks and of taskbrokers.
SLIM_LIBRARIES = Environment(
    "slim_libraries",
    Path(__file__).parents[3] / "worker_image" / "requirements-slim.lock",
    sys.executable,
    python_version=sys.version,
)
