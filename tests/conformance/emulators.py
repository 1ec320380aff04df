"""Public emulators as processes on this machine; those of Step Functions come from the locks of the cluster's pods.

Each has its own environment in the cache (their botocore pins differ from ours), which `make prepare` makes, and a free
port. They are ended by SIGKILL, because LocalEmu ignores SIGTERM for minutes.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.environments import Environment
from tests.servers.ports import free_port
from tests.servers.start import wait_until_up

_LOCKS = Path(__file__).parents[1] / "cluster" / "emulators"
_READY_WITHIN_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class EmulatorRecipe:
    """How to run an emulator: its command inside its environment, and its settings; `{port}` is filled in to both.

    `locks` is the folder that has a folder of the emulator's name, with its lock.
    """

    name: str
    python: tuple[int, int]
    command: tuple[str, ...]
    settings: dict[str, str]
    locks: Path = _LOCKS


EMULATORS = {
    recipe.name: recipe
    for recipe in (
        EmulatorRecipe(
            name="ministack",
            python=(3, 11),
            command=("bin/ministack",),
            settings={"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": "{port}", "SERVICES": "stepfunctions"},
        ),
        EmulatorRecipe(
            name="localemu",
            # Its metadata says 3.12, but it imports warnings.deprecated, which is new in 3.13.
            python=(3, 13),
            command=("bin/python", "-m", "localemu.runtime.main"),
            settings={
                "GATEWAY_LISTEN": "127.0.0.1:{port}",
                "SERVICES": "stepfunctions",
                "STRICT_SERVICE_LOADING": "1",
                "DNS_ADDRESS": "0",
                "DISABLE_EVENTS": "1",
                "SKIP_SSL_CERT_DOWNLOAD": "1",
            },
        ),
    )
}


#: Emulates Amazon SWF. Its environment also has simpleflow, whose deciders run against it.
MOTO = EmulatorRecipe(
    name="moto",
    python=(3, 11),
    command=("bin/moto_server", "--host", "127.0.0.1", "--port", "{port}"),
    settings={},
    locks=Path(__file__).parent,
)


class NoPythonError(Exception):
    """This machine has no Python that can run the emulator."""


@contextlib.contextmanager
def running(recipe: EmulatorRecipe) -> Iterator[str]:
    """Run an emulator and yield its URL; kill it at the end.

    Raises NoPythonError, and MissingError when its environment is not made.
    """
    home = environment_of(recipe).find()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"{recipe.name}-") as scratch:
        log = Path(scratch) / "log"
        settings = {name: value.format(port=port) for name, value in recipe.settings.items()}
        words = [word.format(port=port) for word in recipe.command[1:]]
        environment = {"PATH": os.environ["PATH"], "HOME": scratch, "TMPDIR": scratch, "STATE_DIR": scratch} | settings
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(home / recipe.command[0]), *words],
                env=environment,
                cwd=scratch,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def environment_of(recipe: EmulatorRecipe) -> Environment:
    """Return the emulator's environment. Raises NoPythonError when no Python of this machine fits it."""
    lock = recipe.locks / recipe.name / "requirements.lock"
    mend = lock.with_name("mend.sh")
    return Environment(recipe.name, lock, _python(recipe.python), mend=mend if mend.exists() else None)


def _python(oldest: tuple[int, int]) -> str:
    """Return an interpreter at least that new: ours, one on the PATH, or one of pyenv's. Raises NoPythonError."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python3.{minor}" for minor in range(oldest[1], 20)]
    on_path = [found for name in names if (found := shutil.which(name))]
    in_pyenv = [str(path) for name in names for path in sorted(versions.glob(f"*/bin/{name}"))]
    for candidate in (*on_path, *in_pyenv):
        # pyenv puts shims on the PATH also for inactive versions, so the candidate must be run.
        if subprocess.run([candidate, "-c", "import ssl"], check=False, capture_output=True).returncode == 0:
            return candidate
    raise NoPythonError(f"needs Python {oldest[0]}.{oldest[1]} or newer, and this machine has none that runs")


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the emulator answers HTTP with any status. Raises AssertionError with its log."""

    def answers() -> bool:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as answered:
            answered.close()
        except OSError:
            return False
        return True

    def tail() -> str:
        return log.read_text(errors="replace")[-4000:]

    wait_until_up(f"the emulator at {url}", process, answers, tail, seconds=_READY_WITHIN_SECONDS)
