"""Workers that a broker's configuration lists, and that do not register: their names are resolved again and again."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from activity_worker.taskbroker.broker.worker_map import Registration
from activity_worker.taskbroker.store.statements import TaskFilter
from activity_worker.wire.host_names import is_host_port

log = logging.getLogger(__name__)

#: Seconds between two resolutions, and for one.
RESOLVE_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 5.0
_KEYS: Final = {"application", "namespace", "addresses"}


class WorkerMapError(ValueError):
    """The text is no worker map; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ListedWorkers:
    """The addresses, each HOST:PORT, of workers that take these tasks. A name may stand for several workers."""

    wanted: TaskFilter
    addresses: Sequence[str]


def read_worker_map(text: str) -> Sequence[ListedWorkers]:
    """Return the entries of a JSON list of objects with `addresses`, `application` and `namespace`; "" has none.

    Without an application, or a namespace, an entry is for the tasks of any. Raises WorkerMapError.
    """
    if not text.strip():
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        raise WorkerMapError("it is not JSON") from None
    if not isinstance(found, list):
        raise WorkerMapError('expected a JSON list, such as [{"application": "shop", "addresses": ["worker:50052"]}]')
    return [_entry(place, one) for place, one in enumerate(found)]


def _entry(place: int, found: Any) -> ListedWorkers:
    if not isinstance(found, dict) or not found.keys() <= _KEYS:
        raise WorkerMapError(f"entry {place}: expected an object of {', '.join(sorted(_KEYS))} and nothing else")
    addresses = found.get("addresses")
    if not isinstance(addresses, list) or not addresses:
        raise WorkerMapError(f'entry {place}: addresses is no list of HOST:PORT, such as ["worker:50052"]')
    for one in addresses:
        if not isinstance(one, str) or not is_host_port(one):
            raise WorkerMapError(f"entry {place}: {one!r} in addresses is not HOST:PORT, such as worker:50052")
    names = {name: found.get(name) for name in ("namespace", "application")}
    for name, value in names.items():
        if value is not None and (not isinstance(value, str) or not value):
            raise WorkerMapError(f"entry {place}: {name} is {value!r}: give a name, or leave it out for any")
    return ListedWorkers(TaskFilter(**names), tuple(addresses))


class WorkerResolver:
    """Registers the listed workers, by the addresses that their names have now, until `run` is cancelled."""

    def __init__(self, listed: Sequence[ListedWorkers], register: Callable[[Registration], bool]) -> None:
        self._listed = listed
        self._register = register
        self._unknown: set[str] = set()

    async def run(self) -> None:
        """Resolve every name again and again."""
        while True:
            for entry in self._listed:
                for address in entry.addresses:
                    await self._resolve(entry.wanted, address)
            await asyncio.sleep(RESOLVE_SECONDS)

    async def _resolve(self, wanted: TaskFilter, address: str) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        asking = asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await asking
        except (OSError, TimeoutError, UnicodeError):
            if address not in self._unknown:
                log.warning("no address is known of a worker in the worker map", extra={"facts": {"worker": address}})
            self._unknown.add(address)
            return
        self._unknown.discard(address)
        for ip in sorted({str(one[4][0]) for one in found}):
            shown = f"[{ip}]" if ":" in ip else ip
            self._register(Registration(f"{shown}:{port}", wanted, tls_name=host))
