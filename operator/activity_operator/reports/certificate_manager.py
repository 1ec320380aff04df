"""Manages the report server's certificates: in one Secret, in the TLS context, and as a bundle that workers mount."""

import asyncio
import base64
import json
import logging
import os
import ssl
import tempfile
from binascii import Error as Base64Error
from collections import defaultdict
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from activity_operator.backoff import capped
from activity_operator.cluster.kube import ApiError, KubeError
from activity_operator.cluster.resources import CONFIG_MAPS, SECRETS, Raw, Resource
from activity_operator.reports.certificates import Material, Pair, apply_rotation, plan_rotation, state_of

log = logging.getLogger(__name__)

SECRET_NAME = "activity-operator-report-tls"  # noqa: S105 - a name, not a secret
BUNDLE_NAME = "activitypool-ca"
BUNDLE_KEY = "ca.crt"
#: Seconds between two reads of the Secret, which another replica may have renewed, and of a namespace's bundle, which a
#: user may have edited or deleted, alone or with its namespace.
LOOK_SECONDS = 600.0
RETRY_FIRST_SECONDS = 0.5
RETRY_CAP_SECONDS = 30.0
#: Tries of one read or renewal, if another replica writes at the same time.
ATTEMPTS = 5


class Objects(Protocol):
    """The methods of `KubeClient` that the certificate manager uses."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        """Read one object."""
        ...

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """Create one object."""
        ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Raw, timeout: float | None = None
    ) -> Raw:
        """Replace one object."""
        ...

    async def apply(
        self, resource: Resource, namespace: str, name: str, body: Raw, *, subresource: str = "", dry_run: bool = False
    ) -> Raw:
        """Server-side apply one object."""
        ...


class CertificateManager:
    """The certificates of one replica's report server; all replicas share the Secret.

    `directory` holds the key while the TLS library reads it; it should be private and in memory (None: the temporary
    directory of the process). `now()` is in Unix seconds. `on_bundle` is called when the bundle has changed.
    """

    def __init__(
        self,
        kube: Objects,
        namespace: str,
        names: Sequence[str],
        *,
        now: Callable[[], float],
        on_bundle: Callable[[], None] = lambda: None,
        directory: Path | None = None,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._names = tuple(names)
        self._now = now
        self._on_bundle = on_bundle
        self._directory = directory
        self._material = Material()
        #: The bundle in each namespace at the last read or write, and the time of it.
        self._published: dict[str, tuple[str, float]] = {}
        self._publishing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        self.context.set_alpn_protocols(["http/1.1"])

    @property
    def bundle(self) -> str:
        """The certificates that workers trust, PEM; "" before the Secret was first read."""
        return self._material.bundle

    async def ensure(self) -> None:
        """Read the Secret, renew certificates that are due, and serve the result. Raises `KubeError`."""
        for _ in range(ATTEMPTS):
            try:
                material = await self._look()
            except ApiError as error:
                # Another replica wrote first. Its certificates are as good, so read them.
                if not error.conflict:
                    raise
            else:
                self._use(material)
                return
        raise KubeError(f"the Secret {SECRET_NAME} changes too often to be read")

    async def ensured(self) -> None:
        """Call `ensure` until it succeeds, with a growing pause between two tries."""
        failures = 0
        while True:
            try:
                await self.ensure()
            except KubeError as error:
                failures += 1
                log.warning("the report server's certificate is not available yet: %s", error)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
            else:
                return

    async def run(self) -> None:
        """Read and renew every ten minutes, without end. If that fails, the server keeps its present certificate."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.ensured()

    async def publish(self, namespace: str) -> None:
        """Make sure that a namespace has the present bundle for its workers. Raises `KubeError`.

        A known bundle costs no call. Otherwise there is one read for each namespace, whatever its number of pools, and
        a write if the bundle is missing or different.
        """
        if not self.bundle or self._is_published(namespace):
            return
        async with self._publishing[namespace]:
            if self._is_published(namespace):
                return
            bundle = self.bundle
            if await self._standing(namespace) != bundle:
                body = {"metadata": {"name": BUNDLE_NAME}, "data": {BUNDLE_KEY: bundle}}
                await self._kube.apply(CONFIG_MAPS, namespace, BUNDLE_NAME, body)
            self._published[namespace] = (bundle, self._now())

    def forget(self) -> None:
        """Forget which namespaces have the bundle, so that the next `publish` reads it: at the start of a term."""
        self._published.clear()
        self._publishing.clear()

    def _is_published(self, namespace: str) -> bool:
        bundle, at = self._published.get(namespace, ("", 0.0))
        return bundle == self.bundle and 0 <= self._now() - at < LOOK_SECONDS

    async def _standing(self, namespace: str) -> str | None:
        try:
            found = await self._find(CONFIG_MAPS, namespace, BUNDLE_NAME)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            # The RBAC rules of an older version allow the write and not the read.
            return None
        return None if found is None else (found.get("data") or {}).get(BUNDLE_KEY)

    async def _look(self) -> Material:
        secret = await self._find(SECRETS, self._namespace, SECRET_NAME)
        # A deleted Secret is written again with the same material, because workers trust the bundle that they mounted.
        material = self._material if secret is None else _material(secret)
        try:
            state = state_of(material)
        except ValueError:
            log.exception("the Secret %s holds no readable certificates: new ones are made", SECRET_NAME)
            material = Material()
            state = state_of(material)
        now = self._now()
        steps = plan_rotation(now, state, self._names)
        if not steps and secret is not None:
            return material
        log.info("certificates: %s", ", ".join(step.name.lower() for step in steps) or "the Secret is written again")
        material = await asyncio.to_thread(apply_rotation, steps, material, self._names, now)
        body = _secret(material)
        if secret is None:
            await self._kube.create(SECRETS, self._namespace, body)
        else:
            body["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
            await self._kube.replace(SECRETS, self._namespace, SECRET_NAME, body)
        return material

    async def _find(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        try:
            return await self._kube.get(resource, namespace, name)
        except ApiError as error:
            if error.missing:
                return None
            raise

    def _use(self, material: Material) -> None:
        before, self._material = self._material, material
        if material.serving is not None and material.serving != before.serving:
            load(self.context, material.serving, self._directory)
        if material.bundle != before.bundle:
            self._on_bundle()


def load(context: ssl.SSLContext, pair: Pair, directory: Path | None) -> None:
    """Serve the pair on new connections. The library reads only files, so this writes a private temporary one."""
    handle, name = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(pair.key + pair.certificate)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _secret(material: Material) -> Raw:
    data = {
        "rotation": json.dumps({"upcomingSince": material.upcoming_since, "formerUntil": material.former_until}),
        "former-ca.crt": material.former,
    }
    for prefix, pair in (("ca", material.current), ("upcoming-ca", material.upcoming), ("tls", material.serving)):
        if pair is not None:
            data |= {f"{prefix}.crt": pair.certificate, f"{prefix}.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def _material(secret: Raw) -> Material:
    """Return the Secret's material, empty if the Secret holds none (a chart may create an empty one)."""
    try:
        data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
        rotation = json.loads(data.get("rotation") or "{}")
    except (ValueError, Base64Error):
        return Material()

    def pair(prefix: str) -> Pair | None:
        certificate, key = data.get(f"{prefix}.crt"), data.get(f"{prefix}.key")
        return Pair(certificate, key) if certificate and key else None

    return Material(
        current=pair("ca"),
        upcoming=pair("upcoming-ca"),
        upcoming_since=rotation.get("upcomingSince"),
        former=data.get("former-ca.crt", ""),
        former_until=rotation.get("formerUntil"),
        serving=pair("tls"),
    )
