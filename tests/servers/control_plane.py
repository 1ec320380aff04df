"""A Kubernetes control plane of a test's own, without a node: etcd, kube-apiserver and controllers on free ports.

It runs beside the local cluster and beside others of its kind, so a test may break it, flood it or kill its clients.
The controllers are the real ones. There is no kubelet and no scheduler: pods stay Pending unless a test plays a node.
"""

import functools
import http.client
import json
import shutil
import ssl
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.cluster import certificates, go_builds
from tests.eventually import eventually_sync
from tests.servers.parent import die_with_parent
from tests.servers.ports import free_port

START_SECONDS = 120.0
#: Seconds for a server to end by itself: the API server first ends its watches.
STOP_SECONDS = 5.0
ISSUER = "https://kubernetes.default.svc.cluster.local"
#: The user of the controllers, beside those that a test names.
_CONTROLLERS, _THEIR_TOKEN = "controllers", "token-of-controllers"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane whose processes were started; its API server may not answer yet.

    `trust` is a client's TLS context that trusts only its CA. `folder` has all of its files, also a log of each
    process.
    """

    url: str
    trust: ssl.SSLContext
    folder: Path
    _stack: ExitStack = field(repr=False)
    _servers: "Servers" = field(repr=False)

    @property
    def ca_file(self) -> Path:
        """The certificate of the CA of the API server."""
        return self.folder / "ca.crt"

    @property
    def kubectl(self) -> Path:
        """A kubectl of the API server's version."""
        return _binary("kubectl")

    @property
    def audit_log(self) -> Path:
        """One JSON document a line, where an audit policy was given."""
        return audit_log(self.folder)

    def start_controllers(self, names: Sequence[str], *flags: str) -> None:
        """Start kube-controller-manager with these controllers alone; `flags` are further ones of its own.

        Start it after the CRD is installed: the garbage collector learns of a new kind only every half minute.
        """
        config = kubeconfig(self.folder / "controllers.kubeconfig", self.url, _CONTROLLERS, _THEIR_TOKEN, self.ca_file)
        argv = [
            str(_binary("kube-controller-manager")),
            f"--kubeconfig={config}",
            f"--controllers={','.join(names)}",
            *flags,
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder}",
            "--leader-elect=false",
            "--profiling=false",
        ]
        _start(self._stack, self.folder, "controllers", argv)

    def wait_ready(self) -> None:
        """Wait until the API server answers /readyz with ok. The failure has the end of its log."""
        eventually_sync("the API server is ready", self._is_ready, seconds=START_SECONDS, details=self._log)

    def _log(self) -> str:
        return (self.folder / "apiserver.log").read_text(errors="replace")[-2000:]

    def _is_ready(self) -> bool:
        try:
            return self.send("GET", "/readyz", seconds=2)[0] == 200
        except OSError:
            return False

    def save(self) -> Path:
        """Back up etcd's data, and return the copy. The servers are away meanwhile; they run again, but may not answer.

        etcd is stopped first, so that the copy is of one moment.
        """
        copy = Path(tempfile.mkdtemp(prefix="backup-", dir=self.folder)) / "etcd"
        self._servers.stop()
        shutil.copytree(self.folder / "etcd", copy)
        self._servers.start()
        return copy

    def restore(self, copy: Path) -> None:
        """Put a backup in place of etcd's data, so that resourceVersions go back. The servers run again."""
        self._servers.stop()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(copy, self.folder / "etcd")
        self._servers.start()

    def send(self, method: str, path: str, body: object = None, *, seconds: float = 30.0) -> tuple[int, str]:
        """Call the API server as an administrator; return the status and the body of its answer.

        `body` is sent as JSON. Raises OSError when no answer comes within `seconds`.
        """
        place = urllib.parse.urlsplit(self.url)
        calling = http.client.HTTPSConnection(place.hostname or "", place.port, timeout=seconds, context=self.trust)
        headers = {"Authorization": f"Bearer {_THEIR_TOKEN}", "Content-Type": "application/json"}
        try:
            calling.request(method, path, None if body is None else json.dumps(body), headers)
            answer = calling.getresponse()
            return answer.status, answer.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            calling.close()


class Servers:
    """etcd and the API server of a control plane, which a test may stop and start again."""

    def __init__(self, stack: ExitStack, folder: Path, etcd: Sequence[str], api_server: Sequence[str]) -> None:
        self._stack = stack
        self._folder = folder
        self._commands = {"etcd": etcd, "apiserver": api_server}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both, and return at once."""
        self._running = [_start(self._stack, self._folder, name, argv) for name, argv in self._commands.items()]

    def stop(self) -> None:
        """Stop both, the API server first, and wait until they have ended."""
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running = []


@contextmanager
def control_plane(users: Mapping[str, str], *, audit_policy: str = "") -> Iterator[ControlPlane]:
    """Start etcd and the API server, and yield at once; processes and data are removed at the end.

    `users` are names by bearer token; each of them may do everything. With an `audit_policy` (YAML) the API server
    writes an audit log, which is never rotated.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ap-plane-")))
        url = f"https://127.0.0.1:{free_port()}"
        audit = _audit(folder, audit_policy) if audit_policy else []
        servers = Servers(stack, folder, _etcd(folder), [*_api_server(folder, url, users), *audit])
        servers.start()
        yield ControlPlane(url, ssl.create_default_context(cafile=str(folder / "ca.crt")), folder, stack, servers)


def audit_log(folder: Path) -> Path:
    """Return the audit log of a control plane with this folder."""
    return folder / "audit.jsonl"


def kubeconfig(path: Path, url: str, user: str, token: str, ca_file: Path | None = None) -> Path:
    """Write a kubeconfig for a user with a token; the write is atomic."""
    cluster = {"server": url} | ({"certificate-authority": str(ca_file)} if ca_file else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(yaml.safe_dump(document))
    return draft.replace(path)


def _start(stack: ExitStack, folder: Path, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{name}.log").open("ab"))
    # PLW1509: between fork and exec the function makes one system call, which cannot block on another thread's lock.
    process = subprocess.Popen(argv, stdout=log, stderr=log, preexec_fn=die_with_parent)  # noqa: PLW1509
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@functools.cache
def _binary(name: str) -> Path:
    return go_builds.find((name,))[name]


def _audit(folder: Path, policy: str) -> list[str]:
    file = folder / "audit-policy.yaml"
    file.write_text(policy)
    # A log that exists is appended to, and so can be emptied while the server runs.
    audit_log(folder).touch()
    never_rotated_megabytes = 100_000
    return [
        f"--audit-policy-file={file}",
        f"--audit-log-path={audit_log(folder)}",
        f"--audit-log-maxsize={never_rotated_megabytes}",
    ]


def _etcd(folder: Path) -> list[str]:
    advertised = "http://127.0.0.1:2380"  # etcd checks the form, but a cluster of one member opens no connection to it
    return [
        str(_binary("etcd")),
        "--name=test",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls=unix://{folder / 'etcd.sock'}",
        f"--advertise-client-urls={advertised}",
        f"--listen-peer-urls=unix://{folder / 'peers.sock'}",
        f"--initial-advertise-peer-urls={advertised}",
        f"--initial-cluster=test={advertised}",
        "--log-level=warn",
    ]


def _api_server(folder: Path, url: str, users: Mapping[str, str]) -> list[str]:
    authority = certificates.authority(folder, "ca")
    own = certificates.issue(authority, folder, "apiserver", user="kube-apiserver", addresses=["127.0.0.1"])
    key = certificates.signing_key(folder, "service-accounts")
    known = {_THEIR_TOKEN: _CONTROLLERS, **users}
    tokens = folder / "tokens.csv"
    tokens.write_text("".join(f"{token},{user},{user},system:masters\n" for token, user in known.items()))
    return [
        str(_binary("kube-apiserver")),
        f"--etcd-servers=unix://{folder / 'etcd.sock'}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={url.rpartition(':')[2]}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        f"--token-auth-file={tokens}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--profiling=false",
    ]
