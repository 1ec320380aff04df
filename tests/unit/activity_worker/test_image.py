"""What the Dockerfile of the worker's image promises about its two Python environments."""

import re
from pathlib import Path

import botocore
import pytest

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "worker_image/Dockerfile").read_text(encoding="utf-8")
#: Calls of botocore and of ours that need a service's model.
_CLIENTS = re.compile(r"(?:client_creator|create_client)\(\s*(?:session,\s*)?'?\"?([a-z][a-z-]+)['\"]")


def packages(lock: str) -> dict[str, str]:
    text = (ROOT / "worker_image" / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_supervisor_keeps_the_models_of_every_service_that_it_calls() -> None:
    folder = Path(botocore.__file__).parent
    sources = [folder / name for name in ("credentials.py", "tokens.py", "utils.py")]
    called = {name for path in sources for name in _CLIENTS.findall(path.read_text(encoding="utf-8"))}

    kept = set(re.findall(r"! -name ([a-z-]+)", DOCKERFILE))

    assert {"sts", "sso", "signin"} <= called
    assert kept == called | {"stepfunctions", "sso-oidc", "swf"}


@pytest.mark.parametrize("variant", ["", "-slim"])
def test_both_environments_agree_on_the_releases_they_share(variant: str) -> None:
    runtime, handler = packages(f"requirements{variant}.lock"), packages(f"handler{variant}.lock")

    assert "boto3" in handler
    assert {name: handler[name] for name in handler if name in runtime} == {
        name: version for name, version in runtime.items() if name in handler
    }


def test_slim_variant_has_no_library_of_durable_tasks_and_brokers() -> None:
    removed = {"alembic", "asyncpg", "sqlalchemy", "aiosqlite", "grpcio", "grpcio-health-checking", "protobuf"}

    assert removed <= set(packages("requirements.lock"))
    assert removed & {*packages("requirements-slim.lock"), *packages("handler-slim.lock")} == set()


@pytest.mark.parametrize("lock", ["handler.lock", "handler-slim.lock"])
def test_handlers_of_parent_queues_find_the_redis_client(lock: str) -> None:
    """`activity_worker.flows.parent` runs in a handler's process, with the libraries of that environment only."""
    assert "hiredis" in packages(lock)
