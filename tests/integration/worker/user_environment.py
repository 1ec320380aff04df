"""A handler's Python environment with old releases of the libraries that the supervisor uses.

Renew its lock with `uv pip compile --universal --python-version 3.11 --generate-hashes -o user_libraries.lock
user_libraries.in`.
"""

import sys
from pathlib import Path

from tests.environments import Environment

USER_LIBRARIES = Environment(
    "user_libraries", Path(__file__).with_name("user_libraries.lock"), sys.executable, python_version=sys.version
)
