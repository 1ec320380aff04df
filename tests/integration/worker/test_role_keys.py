"""Keys of a pod's role: what botocore gets from the same services, and None where botocore has to look."""

from pathlib import Path

import botocore.session
import pytest

from activity_worker.wire.role_keys import role_keys
from tests.integration.worker.role_service import KEYS, RoleService


@pytest.fixture(params=["web identity", "pod identity"])
def environment(
    request: pytest.FixtureRequest, role_service: RoleService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The variables of a pod; the process has them, for botocore."""
    found = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1", "HOME": str(tmp_path), "NO_PROXY": "*"}
    found |= role_service.variables(request.param)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def test_keys_and_requests_are_those_of_botocore(environment: dict[str, str], role_service: RoleService) -> None:
    ours = role_keys("eu-west-1", environment, lambda: 0.0)
    theirs = botocore.session.Session().get_credentials().get_frozen_credentials()

    assert ours is not None
    assert ours.get_frozen_credentials() == KEYS
    assert (theirs.access_key, theirs.secret_key, theirs.token) == KEYS
    assert [len(role_service.forms), len(role_service.tokens)] in ([2, 0], [0, 2])
    assert role_service.forms[:1] == role_service.forms[1:]
    assert role_service.tokens[:1] == role_service.tokens[1:]


def test_keys_are_to_be_renewed_before_their_end(environment: dict[str, str]) -> None:
    end = 4_070_908_800.0
    now = [end - 1000]
    keys = role_keys("eu-west-1", environment, lambda: now[0])

    assert keys is not None
    assert not keys.refresh_needed(900)
    now[0] = end - 800
    assert keys.refresh_needed(900)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (403, "refused"),
        (500, "later"),
        (200, "<html>"),
        (200, "{}"),
        (200, "[]"),
        (200, '{"AccessKeyId": 1, "SecretAccessKey": 1, "Token": 1, "Expiration": 1}'),
        (200, "<a><b/></a>"),
    ],
)
def test_answer_without_keys_is_left_to_botocore(
    environment: dict[str, str], role_service: RoleService, status: int, text: str
) -> None:
    role_service.status, role_service.posted, role_service.got = status, text, text

    assert role_keys("eu-west-1", environment) is None


@pytest.mark.parametrize(
    "change",
    [
        {"AWS_ACCESS_KEY_ID": "AK"},
        {"AWS_PROFILE": "shop"},
        {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/role"},
        {"AWS_STS_REGIONAL_ENDPOINTS": "legacy"},
        {"AWS_CONFIG_FILE": __file__},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nonexistent"},
    ],
)
def test_other_configuration_is_left_to_botocore(
    environment: dict[str, str], role_service: RoleService, change: dict[str, str]
) -> None:
    assert role_keys("eu-west-1", environment | change) is None
    assert (role_service.forms, role_service.tokens) == ([], [])


@pytest.mark.parametrize("url", ["http://192.0.2.7/keys", "https://127.0.0.1/keys", "http://agent.example/keys"])
@pytest.mark.parametrize("environment", ["pod identity"], indirect=True)
def test_token_goes_to_the_agents_address_only(environment: dict[str, str], url: str) -> None:
    assert role_keys("eu-west-1", environment | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}) is None
