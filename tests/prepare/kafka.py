"""Getting Apache Kafka's jars from Maven Central, by the lock of tests/servers."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from urllib.request import urlopen

from tests.cluster.progress import step
from tests.cluster.shell import ClusterError
from tests.prepare.retries import retried
from tests.servers import kafka_jars

_ORIGIN = "https://repo1.maven.org/maven2"
_SECONDS = 120.0


def install() -> None:
    """Get the jars unless they are there. Raises ClusterError when one cannot be had, or is another file."""
    home = kafka_jars.home()
    if home.exists():
        return
    unfinished = home.with_suffix(".part")  # renamed when complete
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with step("Apache Kafka's jars"):
        for digest, path in kafka_jars.locked():
            data = retried(path, lambda path=path: _download(path))  # type: ignore[misc]
            if hashlib.sha256(data).hexdigest() != digest:
                raise ClusterError(f"{_ORIGIN}/{path} is not the file of {kafka_jars.LOCK.name}")
            (unfinished / Path(path).name).write_bytes(data)
        unfinished.rename(home)


def _download(path: str) -> bytes:
    try:
        with urlopen(f"{_ORIGIN}/{path}", timeout=_SECONDS) as answer:
            data: bytes = answer.read()
    except OSError as error:
        raise ClusterError(f"could not download {_ORIGIN}/{path}: {error}") from None
    return data
