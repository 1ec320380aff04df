"""What a worker has imported when its source gets the first bytes: no library or source that it does not use."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.integration.worker.role_service import RoleService

#: A worker in this process; a thread is its source, and prints what is imported when the first bytes arrive.
PROGRAM = """
import json, os, socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
def report():
    connection, _ = listener.accept()
    assert connection.recv(65536)
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)
threading.Thread(target=report, daemon=True).start()
from activity_worker.cli.main import main
port = str(listener.getsockname()[1])
sys.exit(main([word.replace("PORT", port) for word in sys.argv[1:]]))
"""
ARN = "arn:aws:states:us-east-1:123456789012:activity:start"
FLAGS = {
    "stepfunctions": ["--activity-arn", ARN, "--endpoint-url", "http://127.0.0.1:PORT"],
    "swf": ["--swf-domain", "shop", "--swf-task-list", "start", "--endpoint-url", "http://127.0.0.1:PORT"],
    "redis": ["--redis-url", "redis://127.0.0.1:PORT", "--redis-flow", "shop", "--redis-queue", "start"],
}
LIBRARIES = {
    "stepfunctions": {"aiohappyeyeballs", "uvloop"},
    "swf": {"aiohappyeyeballs", "uvloop"},
    "redis": {"aiohappyeyeballs", "hiredis", "uvloop"},
}
#: Modules of the standard library whose imports take long.
SLOW = {"importlib.metadata", "http.server", "urllib.request", "email", "xml"}
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
#: What others leave in `sys.modules`: the runtime of compiled libraries, and the tool that measures coverage.
OTHERS = {"activity_worker", "coverage", "cython_runtime", "sitecustomize"}
#: Rooms of the package that belong to one source.
ROOMS = ("activity_worker.steps.store", "activity_worker.steps.runner", "activity_worker.taskbroker.protocol")


def imported(source: str, keys: Mapping[str, str] = KEYS) -> set[str]:
    """Start a worker of a source and return the names of its modules at its first poll."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ACTIVITY_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", "tests.bench.worker_handlers:noop", *FLAGS[source]],
        env={**environment, **keys} | {"AWS_REGION": "us-east-1", "HOME": "/nonexistent", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("source", FLAGS)
def test_worker_imports_only_what_its_source_needs(source: str) -> None:
    modules = imported(source)
    tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - OTHERS
    sources = {name for name in FLAGS if f"activity_worker.sources.{name}" in modules}

    assert {name for name in tops if not name.startswith("_")} <= LIBRARIES[source]
    assert sources == {source}
    assert not {name for name in modules if name.startswith(ROOMS)}
    assert not SLOW & modules


@pytest.mark.parametrize("kind", ["web identity", "pod identity"])
def test_worker_with_a_role_starts_without_botocore(role_service: RoleService, kind: str) -> None:
    modules = imported("stepfunctions", role_service.variables(kind))

    assert len(role_service.forms) + len(role_service.tokens) == 1
    assert "activity_worker.wire.role_keys" in modules
    assert "botocore" not in modules
