"""Where a command has to go: the one server, the master that sentinels name, or the node of a cluster's slot."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from activity_worker.wire.redis_errors import ADDRESS_REFUSED, RedisError, no_sentinel, refusal, unreachable
from activity_worker.wire.redis_limits import ANY_SERVER, RedisLimits
from activity_worker.wire.redis_pipeline import Command, ErrorReply, RedisPipeline, connect, connect_sentinel
from activity_worker.wire.redis_url import RedisUrl, TopologyKind

Address = tuple[str, int]

SLOTS: Final = 16384
#: Commands whose first key is not their first argument, and where it is.
_KEY_AT: Final = {"EVAL": 3, "EVALSHA": 3, "FCALL": 3}
#: Commands without a key: any node may answer.
_KEYLESS: Final = frozenset({"PING", "SCRIPT", "FUNCTION", "INFO", "ROLE", "CLIENT"})


class Topology(Protocol):
    """Which server a command goes to."""

    @property
    def many(self) -> bool:
        """Whether commands may go to several servers."""
        ...

    def groups(self, commands: Sequence[Command]) -> list[list[int]]:
        """Return the indices of commands, sorted by where they go."""
        ...

    async def find(self, command: Command) -> Address:
        """Return the server to ask; raises `RedisError`."""
        ...

    def check_together(self, commands: Sequence[Command]) -> None:
        """Raise `RedisError` for commands that cannot be one transaction."""
        ...

    async def follow(self, answer: str) -> None:
        """Learn from a node's answer, `MOVED slot host:port`."""
        ...

    def forget(self, address: Address) -> None:
        """Look again before this server is named another time: it does not answer, or follows another."""
        ...

    async def close(self) -> None:
        """Free what is held."""
        ...


def topology_of(url: RedisUrl, limits: RedisLimits = ANY_SERVER) -> Topology:
    """Return the topology of the URL's servers; `limits` judge the addresses that the servers name."""
    match url.kind:
        case TopologyKind.SERVER:
            return _SingleServer(url)
        case TopologyKind.SENTINEL:
            return _SentinelTopology(url, limits)
        case TopologyKind.CLUSTER:
            return _ClusterTopology(url, limits)


def check_tags(*names: str) -> None:
    """Raise `ValueError` unless the names of a flow and its queues share a hash tag, so that a cluster keeps all of
    their keys in one slot.
    """
    tags = {_tag(name.encode(errors="surrogateescape")) for name in names}
    if None in tags or len(tags) > 1:
        raise ValueError(
            f"{', '.join(dict.fromkeys(names))}: in a cluster the names of a flow and its queues need one hash tag, "
            "so that their keys lie in one slot; name them as {shop}orders and {shop}paid"
        )


@lru_cache(4096)
def key_slot(key: str | bytes) -> int:
    """Return the slot of a key in a cluster: of what is between its first braces, or of all of it."""
    data = key if isinstance(key, bytes) else key.encode(errors="surrogateescape")
    tag = _tag(data)
    crc = 0
    for byte in data if tag is None else tag:
        crc = ((crc << 8) & 0xFFFF) ^ _CRC16[((crc >> 8) ^ byte) & 0xFF]
    return crc % SLOTS


def _tag(data: bytes) -> bytes | None:
    start = data.find(b"{")
    end = data.find(b"}", start + 1)
    return data[start + 1 : end] if start >= 0 and end > start + 1 else None


def _crc16_of(byte: int) -> int:
    crc = byte << 8
    for _ in range(8):
        crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


_CRC16: Final = tuple(_crc16_of(byte) for byte in range(256))


class _SingleServer:
    """The server of the URL, whatever happens."""

    many: Final = False

    def __init__(self, url: RedisUrl) -> None:
        self._address = url.hosts[0]

    def groups(self, commands: Sequence[Command]) -> list[list[int]]:
        return [list(range(len(commands)))]

    async def find(self, command: Command) -> Address:  # noqa: ARG002 - the same for all
        return self._address

    def check_together(self, commands: Sequence[Command]) -> None:
        """All can be."""

    async def follow(self, answer: str) -> None:
        raise refusal(answer)

    def forget(self, address: Address) -> None:
        """There is no other."""

    async def close(self) -> None:
        """Nothing is held."""


class _SentinelTopology:
    """The master, as the first sentinel that answers names it."""

    many: Final = False

    def __init__(self, url: RedisUrl, limits: RedisLimits) -> None:
        self._url = url
        self._limits = limits
        self._sentinels = list(url.hosts)
        self._master: Address | None = None
        self._asking = asyncio.Lock()

    def groups(self, commands: Sequence[Command]) -> list[list[int]]:
        return [list(range(len(commands)))]

    async def find(self, command: Command) -> Address:  # noqa: ARG002 - the same for all
        if self._master is None:
            async with self._asking:
                if self._master is None:
                    self._master = await self._ask()
        return self._master

    def check_together(self, commands: Sequence[Command]) -> None:
        """All can be."""

    async def follow(self, answer: str) -> None:
        raise refusal(answer)

    def forget(self, address: Address) -> None:
        if self._master == address:
            self._master = None

    async def close(self) -> None:
        """Nothing is held: sentinels are asked on a connection of the moment."""

    async def _ask(self) -> Address:
        troubles: list[RedisError] = []
        for sentinel in list(self._sentinels):
            try:
                master = await self._ask_one(sentinel)
            except RedisError as error:
                troubles.append(error)
                # Ask it last the next time, also if the caller gives up before an answer is found.
                self._sentinels.remove(sentinel)
                self._sentinels.append(sentinel)
                continue
            if master is not None:
                # The one that knows is asked first the next time.
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                return master
        if not troubles:
            raise unreachable("NoMaster", f"no sentinel knows a master {self._url.master!r}: is that its name?")
        # What a policy refuses needs a correction; a sentinel that is down may come back.
        raise next((trouble for trouble in troubles if trouble.code == ADDRESS_REFUSED), troubles[0])

    async def _ask_one(self, sentinel: Address) -> Address | None:
        connection = await connect_sentinel(self._url, *sentinel, self._limits)
        try:
            (found,) = await connection.exchange(
                [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.master)], self._url.answer_seconds
            )
        finally:
            await connection.close()
        if isinstance(found, ErrorReply):
            unknown = found.error.code == "ERR" and "unknown command" in found.error.message
            raise no_sentinel(f"{sentinel[0]}:{sentinel[1]}") if unknown else found.error
        if found is None:
            return None
        match found:
            case [host, port]:
                return self._limits.address(host, port, f"the sentinel {sentinel[0]}:{sentinel[1]}")
        raise _not_a_map()


class _ClusterTopology:
    """The node that serves a key's slot, as any node of the cluster describes it."""

    many: Final = True

    def __init__(self, url: RedisUrl, limits: RedisLimits) -> None:
        self._url = url
        self._limits = limits
        self._nodes: dict[int, Address] = {}
        self._known: list[Address] = list(url.hosts)
        self._asking = asyncio.Lock()

    def groups(self, commands: Sequence[Command]) -> list[list[int]]:
        found: dict[Address | int, list[int]] = {}
        for at, command in enumerate(commands):
            slot = _slot(command) or 0
            found.setdefault(self._nodes.get(slot, slot), []).append(at)
        return list(found.values())

    async def find(self, command: Command) -> Address:
        slot = _slot(command) or 0
        if slot not in self._nodes:
            async with self._asking:
                if slot not in self._nodes:
                    await self._learn()
        if slot not in self._nodes:
            raise unreachable("CLUSTERDOWN", f"no node of the cluster serves slot {slot}")
        return self._nodes[slot]

    def check_together(self, commands: Sequence[Command]) -> None:
        if len({_slot(command) for command in commands}) > 1:
            raise refusal("CROSSSLOT")

    async def follow(self, answer: str) -> None:
        code, slot, where = [*answer.split(" "), "", ""][:3]
        if code != "MOVED":
            raise refusal(answer)
        host, _, port = where.rpartition(":")
        if host and slot.isdecimal() and len(slot) <= 5 and int(slot) < SLOTS:
            self._nodes[int(slot)] = self._limits.address(host, port, "MOVED")
        else:
            # A node that does not know how others are reached: the whole map is asked for again.
            self._nodes = {}

    def forget(self, address: Address) -> None:
        self._nodes = {slot: node for slot, node in self._nodes.items() if node != address}

    async def close(self) -> None:
        """Nothing is held: the map is asked for on a connection of the moment."""

    async def _learn(self) -> None:
        trouble: RedisError | None = None
        for node in dict.fromkeys([*self._known, *self._url.hosts]):
            try:
                self._take(await self._map_of(node), node)
            except RedisError as error:
                if error.code == ADDRESS_REFUSED:
                    raise
                trouble = trouble or error
                continue
            return
        raise trouble or unreachable("CLUSTERDOWN", "no node of the cluster answers")

    async def _map_of(self, node: Address) -> list[Any]:
        connection: RedisPipeline = await connect(self._url, *node, self._limits)
        try:
            (found,) = await connection.exchange([("CLUSTER", "SLOTS")], self._url.answer_seconds)
        finally:
            await connection.close()
        if isinstance(found, ErrorReply):
            raise found.error
        if not isinstance(found, list):
            raise _not_a_map()
        return found

    def _take(self, slots: list[Any], told_by: Address) -> None:
        nodes: dict[int, Address] = {}
        judged: dict[Address, Address] = {}
        covered = 0
        for entry in slots:
            first, last, node = _slot_range(entry, told_by)
            covered += last - first + 1
            # Ranges do not overlap: no honest map has more slots than there are.
            if not 0 <= first <= last < SLOTS or covered > SLOTS:
                raise _not_a_map()
            if node not in judged:
                judged[node] = self._limits.address(*node, "CLUSTER SLOTS")
            nodes.update(dict.fromkeys(range(first, last + 1), judged[node]))
        self._nodes = nodes
        self._known = list(dict.fromkeys(nodes.values()))


def _slot_range(entry: Any, told_by: Address) -> tuple[int, int, Address]:
    """Return the first and last slot of an entry of `CLUSTER SLOTS` and its master; raises `RedisError`."""
    match entry:
        # A node that does not know its own host's name leaves it out.
        case [int(first), int(last), [str() | None as host, int(port), *_], *_]:
            return first, last, (host or told_by[0], port)
    raise _not_a_map()


def _not_a_map() -> RedisError:
    return unreachable("NotRedis", "the answer about the servers' addresses is not one of Redis")


def _slot(command: Command) -> int | None:
    name = str(command[0]).upper()
    if name in _KEYLESS:
        return None
    key = command[_KEY_AT.get(name, 1)]
    return key_slot(key if isinstance(key, bytes) else str(key))
