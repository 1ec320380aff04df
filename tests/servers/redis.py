"""Redis servers of a test's own: one, one with a replica and sentinels, or a cluster."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import packages
from tests.cluster import certificates
from tests.eventually import eventually_sync
from tests.servers import server_user
from tests.servers.ports import free_port
from tests.servers.start import end, start


@dataclass
class RedisServer:
    """A server on 127.0.0.1. It may be killed, frozen and restarted with the same port and folder."""

    folder: Path
    port: int
    config: dict[str, str]
    #: Further lines of its configuration; `user ...` makes a user.
    lines: list[str] = field(default_factory=list)
    arguments: tuple[str, ...] = ()
    userinfo: str = ""
    tls_ca: Path | None = None
    _running: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL for a client."""
        who = f"{self.userinfo}@" if self.userinfo else ""
        if self.tls_ca is not None:
            return f"rediss://{who}127.0.0.1:{self.port}/0?ssl_ca_certs={self.tls_ca}"
        return f"redis://{who}127.0.0.1:{self.port}/0"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        path = self.folder / "redis.conf"
        if not path.exists():
            settings = [f"{name} {value}" for name, value in self.config.items()]
            path.write_text("\n".join([*settings, *self.lines]) + "\n")
            server_user.own(path)
        argv: list[str | Path] = [packages.find("redis-server"), path, *self.arguments]
        self._running = start("redis-server", argv, self.folder, self._accepts)

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._running is not None
        return self._running.pid

    def kill(self) -> None:
        """Kill it, like a machine that is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop its process: it keeps its connections and answers nothing, until `thaw`."""
        assert self._running is not None
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue its process."""
        assert self._running is not None
        self._running.send_signal(signal.SIGCONT)

    def say(self, *command: str) -> str:
        """Run a command by redis-cli, as the server's default user; return the output."""
        asked: list[str | Path] = [packages.find("redis-cli"), "-p", str(self.port)]
        if self.tls_ca is not None:
            asked += ["--tls", "--cacert", self.tls_ca]
        environment = {**os.environ}
        if "requirepass" in self.config:
            environment["REDISCLI_AUTH"] = self.config["requirepass"]
        done = subprocess.run([*asked, *command], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def _end(self, number: signal.Signals) -> None:
        if self._running is not None:
            self._running.send_signal(signal.SIGCONT)
            end(self._running, number)
            self._running = None

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def redis_server(
    *,
    password: str = "",
    users: Sequence[str] = (),
    appendonly: bool = False,
    tls: bool = False,
    config: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    port: int | None = None,
) -> Iterator[RedisServer]:
    """Yield a running server; it is ended and removed afterwards.

    `password` is the default user's. `users` are lines as an ACL file has them: `NAME on >SECRET ~queue:* +@all`.
    `appendonly`: every answered write survives a kill. `tls`: it accepts only TLS, with a CA of its own. `config` adds
    to its configuration.
    """
    folder = Path(tempfile.mkdtemp(prefix="redis-", dir="/tmp"))
    port = port or free_port()
    settings = {"bind": "127.0.0.1", "dir": str(folder), "save": '""', "port": str(port), "daemonize": "no"}
    if password:
        settings |= {"requirepass": password}
    if appendonly:
        settings |= {"appendonly": "yes", "appendfsync": "always"}
    if tls:
        settings |= _tls(folder, port)
    server = RedisServer(
        folder,
        port,
        settings | dict(config or {}),
        [f"user {user}" for user in users],
        arguments,
        f":{password}" if password else "",
        Path(settings["tls-ca-cert-file"]) if tls else None,
    )
    server_user.own(folder)
    for file in folder.iterdir():
        server_user.own(file)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Replicated:
    """A master, a replica, and the sentinels that watch them under the name `shop`."""

    master: RedisServer
    replica: RedisServer
    sentinels: tuple[RedisServer, ...]

    @property
    def url(self) -> str:
        """The URL with which a client finds the present master."""
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        who = f"{self.master.userinfo}@" if self.master.userinfo else ""
        return f"redis+sentinel://{who}{hosts}/shop/0"


@contextmanager
def redis_with_sentinels(*, password: str = "", sentinels: int = 3) -> Iterator[Replicated]:
    """Yield a master with a replica, both with an append-only file, and sentinels that fail over after 1 s."""
    with ExitStack() as stack:
        secret = {"masterauth": password} if password else {}
        master = stack.enter_context(redis_server(password=password, appendonly=True, config=secret))
        follow = {"replicaof": f"127.0.0.1 {master.port}", "repl-diskless-sync-delay": "0"}
        replica = stack.enter_context(redis_server(password=password, appendonly=True, config=secret | follow))
        eventually_sync("the replica follows", lambda: "master_link_status:up" in replica.say("INFO", "replication"))
        quorum = sentinels // 2 + 1
        lines = {
            f"sentinel monitor shop 127.0.0.1 {master.port}": str(quorum),
            "sentinel down-after-milliseconds shop": "1000",
            "sentinel failover-timeout shop": "3000",
        }
        if password:
            lines["sentinel auth-pass shop"] = password
        watching = [
            stack.enter_context(redis_server(config=lines, arguments=("--sentinel",))) for _ in range(sentinels)
        ]
        for one in watching:
            eventually_sync("the sentinels know each other and the replica", lambda one=one: _agrees(one, sentinels))  # type: ignore[misc]
        yield Replicated(master, replica, tuple(watching))


@contextmanager
def redis_cluster(*, nodes: int = 3, password: str = "") -> Iterator[tuple[RedisServer, ...]]:
    """Yield the masters of a cluster without replicas, which share the hash slots."""
    with ExitStack() as stack:
        secret = {"masterauth": password} if password else {}
        # The tests end none of them; the time-out only keeps a stalled machine from marking one as failed.
        config = {"cluster-enabled": "yes", "cluster-node-timeout": "5000"} | secret
        members = []
        for _ in range(nodes):
            port = _cluster_port()
            bus = {"cluster-port": str(port + 1)}
            members.append(stack.enter_context(redis_server(password=password, port=port, config=config | bus)))
        members[0].say("--cluster", "create", *(one.address for one in members), "--cluster-yes")
        for one in members:
            eventually_sync("the cluster serves", lambda one=one: "cluster_state:ok" in one.say("CLUSTER", "INFO"))  # type: ignore[misc]
        yield tuple(members)


def cluster_url(members: Sequence[RedisServer]) -> str:
    """Return the URL of a cluster."""
    who = f"{members[0].userinfo}@" if members[0].userinfo else ""
    return f"redis+cluster://{who}{','.join(one.address for one in members)}"


def _tls(folder: Path, port: int) -> dict[str, str]:
    ca = certificates.authority(folder, "ca")
    own = certificates.issue(ca, folder, "redis", user="redis", addresses=["127.0.0.1", "localhost"])
    return {
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": str(own.certificate),
        "tls-key-file": str(own.key),
        "tls-ca-cert-file": str(ca.certificate_file),
        "tls-auth-clients": "no",
    }


def _agrees(sentinel: RedisServer, sentinels: int) -> bool:
    words = sentinel.say("SENTINEL", "MASTERS").splitlines()
    facts = dict(zip(words[::2], words[1::2], strict=False))
    return facts.get("num-slaves") == "1" and facts.get("num-other-sentinels") == str(sentinels - 1)


def _cluster_port() -> int:
    """Return a port; the port above it, for the cluster's own traffic, is reserved too."""
    while True:
        port, above = free_port(), free_port()
        if above == port + 1:
            return port
