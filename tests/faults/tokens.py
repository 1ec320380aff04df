"""A replica's ServiceAccount and its token, which is kept as by a kubelet: bound to an object, renewed in its file."""

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.faults.api import Raw
from tests.faults.fault_cluster import FaultCluster

#: Seconds for which the API server accepts an expired token, to allow for clock skew.
LEEWAY_SECONDS = 60.0
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@dataclass
class Account:
    """One replica's ServiceAccount. `bound_to` is "secrets" or "pods"; `token` is the one in its file."""

    cluster: FaultCluster
    namespace: str
    name: str
    folder: Path
    bound_to: str
    token: str = field(default="", repr=False)
    _secrets: int = 0

    async def open(self, port: int) -> None:
        """Make the account, with all rights, and its files; the replica finds the API server at this port."""
        self.folder.mkdir()
        (self.folder / "ca.crt").write_bytes((self.cluster.folder / "ca.crt").read_bytes())
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        (self.folder / "environment.json").write_text(json.dumps(environment))
        await self._make("serviceaccounts", {"metadata": {"name": self.name}})
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        binding = {"metadata": {"name": f"{self.namespace}-{self.name}"}, "subjects": [subject], "roleRef": role}
        await self.cluster.api.call("POST", BINDINGS, binding)
        await self.renew()

    async def renew(self, lasts_seconds: float = 0.0) -> None:
        """Write a new token to the file, atomically. It is valid for `lasts_seconds`, or for an hour if that is 0."""
        bound = await (self._pod() if self.bound_to == "pods" else self._secret())
        self.token = await self.cluster.api.token(self.namespace, account=self.name, bound=bound)
        if lasts_seconds:
            self.token = _ending(self.token, self.cluster.folder / "service-accounts.key", lasts_seconds)
        draft = self.folder / "token.draft"
        draft.touch(mode=0o600)
        draft.write_text(self.token)
        draft.replace(self.folder / "token")

    async def revoke(self) -> None:
        """Delete the object that the token is bound to; the API server's cache accepts the token for 10 s more."""
        name = self.name if self.bound_to == "pods" else f"token-{self._secrets}"
        await self.cluster.api.call("DELETE", self._path(f"{self.bound_to}/{name}"), {"gracePeriodSeconds": 0})

    async def refused(self, token: str) -> bool:
        """Whether the API server refuses a token."""
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.cluster.trust)) as session,
            session.get(
                f"{self.cluster.url}{self._path('pods')}", headers={"Authorization": f"Bearer {token}"}
            ) as answer,
        ):
            return answer.status == 401

    def _path(self, what: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{what}"

    async def _make(self, what: str, body: Raw) -> Raw:
        return await self.cluster.api.call("POST", self._path(what), body) or {}

    async def _secret(self) -> Raw:
        self._secrets += 1
        return await self._make("secrets", {"metadata": {"name": f"token-{self._secrets}"}})

    async def _pod(self) -> Raw:
        """Make the replica's pod with that account: the API server binds tokens to such a pod only."""
        spec = {"containers": [{"name": "operator", "image": "played"}], "automountServiceAccountToken": False}
        return await self._make(
            "pods", {"metadata": {"name": self.name}, "spec": {**spec, "serviceAccountName": self.name}}
        )


def _ending(token: str, key_file: Path, seconds: float) -> str:
    """Return the token signed again with an earlier expiry: the API server itself issues none below ten minutes."""
    head, claims, _ = token.split(".")
    padded = claims + "=" * (-len(claims) % 4)
    end = int(time.time() + seconds - LEEWAY_SECONDS)
    claims = json.loads(base64.urlsafe_b64decode(padded)) | {"exp": end, "iat": end - 60, "nbf": end - 60}
    signed = f"{head}.{_encoded(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{signed}.{_encoded(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
