"""The endpoint and token that kopf gets for the API server."""

from typing import Any

import pytest

from activity_operator.cluster.kube import read_access


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", ""])
async def test_token_is_passed_without_its_scheme(scheme: str) -> None:
    """The in-cluster loader adds a lower-case scheme and kopf adds its own; "Bearer bearer" would be a 401."""

    async def load(configuration: Any) -> None:
        configuration.api_key["BearerToken"] = f"{scheme}secret"

    assert (await read_access(load)).token == "secret"
