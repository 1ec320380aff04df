"""The Python environment of the published client.

Renew its lock with `uv pip compile --universal --python-version 3.11 --generate-hashes -o published_client.lock
published_client.in`.
"""

import sys
from pathlib import Path

from tests.environments import Environment

PUBLISHED_CLIENT = Environment(
    "published_client", Path(__file__).with_name("published_client.lock"), sys.executable, python_version=sys.version
)
