"""What kopf is given to reach the API server with."""

from typing import Any

import pytest

from activity_operator.cluster.kube import endpoint


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", ""])
async def test_the_token_comes_without_its_scheme(scheme: str) -> None:
    """In a pod the loader writes it in lower case; kopf puts its own in front, and "Bearer bearer" is a 401."""

    async def load(configuration: Any) -> None:
        configuration.api_key["BearerToken"] = f"{scheme}secret"

    assert (await endpoint(load)).token == "secret"
