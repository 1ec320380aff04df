"""A watch of one collection of the API server, in a thread of its own: every change of every object, in order."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import urllib3
from kubernetes import config

Raw = dict[str, Any]
#: Called with an object's name and its present state, None once it is gone.
Listener = Callable[[str, Raw | None], None]

CONNECT_SECONDS, QUIET_SECONDS = 10, 60
PAUSE_SECONDS = 0.5
GONE = 410
UNREACHABLE = (urllib3.exceptions.HTTPError, OSError, ValueError)


class ForgottenError(Exception):
    """The API server no longer has the version from which a watch should continue: the collection is listed again."""


class Watch:
    """Lists a collection and follows it until `stop`; a broken connection causes a new list.

    `path` is the collection's, such as /api/v1/namespaces/NAME/pods.
    """

    def __init__(self, kubeconfig: Path, path: str, listener: Listener) -> None:
        self._client = config.new_client_from_config(str(kubeconfig))
        self._path = path
        self._listener = listener
        self._version = ""
        self._versions: dict[str, str] = {}
        self._stopped = threading.Event()
        self._open: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._follow_until_stopped, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """List the collection, call the listener for every object, and follow the collection from then on."""
        self._list()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the listener is not called after that."""
        self._stopped.set()
        if (answer := self._open) is not None:
            with contextlib.suppress(Exception):
                answer.shutdown()
        self._thread.join(QUIET_SECONDS)
        self._client.rest_client.pool_manager.clear()

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of every present object, by the last event."""
        return dict(self._versions)

    def listed_versions(self) -> dict[str, str]:
        """Ask the API server for the resourceVersion of every present object."""
        return {_name(item): item["metadata"]["resourceVersion"] for item in self._read()["items"]}

    def _follow_until_stopped(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow()
            except ForgottenError:
                self._version = ""
            except UNREACHABLE:
                self._stopped.wait(PAUSE_SECONDS)

    def _follow(self) -> None:
        """Pass on every change after the last version, until the API server ends the watch."""
        if not self._version:
            self._list()
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={self._version}"
        with self._get(f"{self._path}?{query}") as answer:
            self._open = answer
            for line in _lines(answer):
                if self._stopped.is_set():
                    return
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ForgottenError(event["object"].get("message", ""))
                if event["type"] != "BOOKMARK":
                    self._tell(event["object"], gone=event["type"] == "DELETED")
                self._version = str(event["object"]["metadata"]["resourceVersion"])

    def _list(self) -> None:
        found = self._read()
        names = {_name(item) for item in found["items"]}
        for name in set(self._versions) - names:
            del self._versions[name]
            self._listener(name, None)
        for item in found["items"]:
            if self._versions.get(_name(item)) != item["metadata"]["resourceVersion"]:
                self._tell(item, gone=False)
        self._version = str(found["metadata"]["resourceVersion"])

    def _tell(self, item: Raw, *, gone: bool) -> None:
        name = _name(item)
        if gone:
            self._versions.pop(name, None)
        else:
            self._versions[name] = item["metadata"]["resourceVersion"]
        if not self._stopped.is_set():
            self._listener(name, None if gone else item)

    def _read(self) -> Raw:
        with self._get(self._path) as answer:
            return cast("Raw", json.loads(answer.read()))

    def _get(self, path: str) -> urllib3.BaseHTTPResponse:
        where = self._client.configuration.host + path
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=QUIET_SECONDS)
        answer = self._client.rest_client.pool_manager.request(
            "GET", where, headers=dict(self._client.default_headers), preload_content=False, timeout=timeout
        )
        if answer.status != 200:
            text = answer.read()[:300].decode(errors="replace")
            if answer.status == GONE:
                raise ForgottenError(text)
            raise ConnectionError(f"{path}: status {answer.status}: {text}")
        return cast("urllib3.BaseHTTPResponse", answer)


def _name(item: Raw) -> str:
    return str(item["metadata"]["name"])


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the lines of an answer that does not end by itself."""
    rest = b""
    for piece in answer.stream(2**16, decode_content=True):
        *whole, rest = (rest + piece).split(b"\n")
        yield from filter(None, whole)
