"""Services beside a worker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker.role_service import RoleService, serving


@pytest.fixture
def role_service(tmp_path: Path) -> Iterator[RoleService]:
    """Serve keys of a role on a port of this machine."""
    with serving(RoleService(tmp_path / "token")) as service:
        yield service
