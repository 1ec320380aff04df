"""A control plane of its own for faults: etcd, kube-apiserver and three controllers on free ports, without a node.

Beside the local cluster, not in it: a run kills operators and holds back calls, which nobody else should see. The
controllers are the real ones, so that a ReplicaSet picks the pods that it removes as it does anywhere.
"""

import asyncio
import ctypes
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from activity_operator.cluster.kinds import POOLS
from tests.cluster import certificates, go_builds
from tests.faults import audit
from tests.faults.api import Api
from tests.faults.patience import until
from tests.servers.ports import free_port

START_SECONDS = 120.0
ISSUER = "https://kubernetes.default.svc.cluster.local"
CRD_FILE = Path(__file__).parents[2] / "crds" / "activitypools.activitypools.dev.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONTROLLERS = "deployment-controller,replicaset-controller,garbage-collector-controller"
#: Those that miss a node and evict its pods.
OF_NODES = "node-lifecycle-controller,taint-eviction-controller"
#: The replicas' users, one each, so that the audit log tells them apart.
REPLICAS = ("operator-a", "operator-b", "operator-c")
#: Tokens that the API server knows, by user: who may do everything here. What the operator may do is tested elsewhere.
TOKENS = {user: f"token-of-{user}" for user in ("test", "controllers", *REPLICAS)}
#: What a user's next token ends in.
RENEWED = "-renewed"


@dataclass(frozen=True, slots=True)
class Ground:
    """A running control plane: its address, how to trust it, a client of the test's own, a folder for files."""

    url: str
    trust: ssl.SSLContext
    api: Api
    folder: Path


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however that happens."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@asynccontextmanager
async def ground(*, missed_seconds: float = 0.0) -> AsyncIterator[Ground]:
    """Start a control plane with the CRD of this tree; it and its data are gone at the end.

    With `missed_seconds` nodes are watched over, too: one that is silent for so long is missed, and its pods evicted.
    """
    binaries = go_builds.ensure(("etcd", "kube-apiserver", "kube-controller-manager"))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ap-faults-")))
        authority = certificates.authority(folder, "ca")
        trust = ssl.create_default_context(cafile=str(authority.certificate_file))
        url = f"https://127.0.0.1:{free_port()}"
        await _daemon(stack, folder, "etcd", _etcd(binaries["etcd"], folder))
        await _daemon(stack, folder, "apiserver", _api_server(binaries["kube-apiserver"], folder, url))
        session = aiohttp.ClientSession(
            url,
            headers={"Authorization": f"Bearer {TOKENS['test']}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        )
        stack.push_async_callback(session.close)
        api = Api(session)
        await until("the API server is ready", api.ready, START_SECONDS)
        await _install_crd(api)
        # After the CRD: the garbage collector learns of a new kind only every half minute.
        controllers = _controllers(binaries["kube-controller-manager"], folder, url, missed_seconds)
        await _daemon(stack, folder, "controllers", controllers)
        yield Ground(url, trust, api, folder)


def kubeconfig(path: Path, url: str, user: str, ca_file: Path | None = None, *, renewed: bool = False) -> Path:
    """Write a kubeconfig for one of the known users, with a token that is `renewed` once; a reader sees all or none."""
    cluster = {"server": url} | ({"certificate-authority": str(ca_file)} if ca_file else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "faults", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": TOKENS[user] + RENEWED * renewed}}],
        "contexts": [{"name": "faults", "context": {"cluster": "faults", "user": user}}],
        "current-context": "faults",
    }
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(yaml.safe_dump(document))
    return draft.replace(path)


async def _daemon(stack: AsyncExitStack, folder: Path, name: str, argv: list[str]) -> None:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, preexec_fn=die_with_parent)

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)


def _etcd(binary: Path, folder: Path) -> list[str]:
    advertised = "http://127.0.0.1:2380"  # the form is checked, but a cluster of one member dials nobody
    return [
        str(binary),
        "--name=faults",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls=unix://{folder / 'etcd.sock'}",
        f"--advertise-client-urls={advertised}",
        f"--listen-peer-urls=unix://{folder / 'peers.sock'}",
        f"--initial-advertise-peer-urls={advertised}",
        f"--initial-cluster=faults={advertised}",
        "--log-level=warn",
    ]


def _api_server(binary: Path, folder: Path, url: str) -> list[str]:
    authority = certificates.authority(folder, "ca")
    own = certificates.issue(authority, folder, "apiserver", user="kube-apiserver", addresses=["127.0.0.1"])
    key = certificates.signing_key(folder, "service-accounts")
    tokens = folder / "tokens.csv"
    known = [(token + end, user) for user, token in TOKENS.items() for end in ("", RENEWED)]
    tokens.write_text("".join(f"{token},{user},{user},system:masters\n" for token, user in known))
    return [
        str(binary),
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
        *audit.arguments(folder),
    ]


def _controllers(binary: Path, folder: Path, url: str, missed_seconds: float) -> list[str]:
    config = kubeconfig(folder / "controllers.kubeconfig", url, "controllers", folder / "ca.crt")
    chosen = [f"--controllers={CONTROLLERS}"]
    if missed_seconds:
        chosen = [f"--controllers={CONTROLLERS},{OF_NODES}", f"--node-monitor-grace-period={missed_seconds:g}s"]
        chosen.append("--node-monitor-period=500ms")
    return [
        str(binary),
        f"--kubeconfig={config}",
        *chosen,
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder}",
        "--leader-elect=false",
        "--profiling=false",
    ]


async def _install_crd(api: Api) -> None:
    await api.call("POST", CRDS, yaml.safe_load(CRD_FILE.read_text(encoding="utf-8")))

    async def served() -> bool:
        return await api.call("GET", POOLS.path(), expect=(404, 429)) is not None

    await until("ActivityPools are served", served, START_SECONDS)
