"""PURE: the report server's own certificate authority and certificate, and when each is renewed.

A worker trusts the authorities in its mounted bundle, and a new bundle takes minutes to reach the worker. So the bundle
holds a new authority one day before the server uses it, and a former authority for one day after its last use.

| state of the authority | enters                                   | leaves                              |
|------------------------|------------------------------------------|-------------------------------------|
| upcoming               | the current one has a third of its time left | a day later: it becomes current |
| current                | founded with the Secret, or promoted     | when the upcoming one is promoted   |
| former                 | the upcoming one was promoted            | a day later: dropped from the bundle |
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY_SECONDS = 86_400.0
AUTHORITY_SECONDS = 730 * DAY_SECONDS
SERVING_SECONDS = 90 * DAY_SECONDS
#: Share of the lifetime that is left when an authority or a certificate is renewed.
RENEW_SHARE = 1 / 3
#: Seconds between the announcement of an authority and its first use, and between its last use and its removal.
OVERLAP_SECONDS = DAY_SECONDS
#: Seconds by which certificates are backdated, because the clocks of nodes may be behind ours.
BACKDATED_SECONDS = 3600.0


class RotationStep(Enum):
    """One step of a rotation; several steps happen in this order."""

    FOUND = auto()
    ANNOUNCE = auto()
    PROMOTE = auto()
    RETIRE = auto()
    ISSUE = auto()


@dataclass(frozen=True, slots=True)
class RotationState:
    """The facts that rotation depends on. Times are Unix seconds, None if there is no such certificate.

    `serving_current`: the current authority has signed the served certificate.
    """

    current_until: float | None = None
    upcoming_since: float | None = None
    former_until: float | None = None
    serving_until: float | None = None
    serving_names: tuple[str, ...] = ()
    serving_current: bool = False


def plan_rotation(now: float, state: RotationState, names: Sequence[str]) -> tuple[RotationStep, ...]:
    """Return the steps that are due now, so that the served certificate is valid for `names` and workers trust it."""
    if state.current_until is None or state.current_until <= now:
        return (RotationStep.FOUND, RotationStep.ISSUE)
    steps: list[RotationStep] = []
    if state.upcoming_since is None:
        if state.current_until - now < AUTHORITY_SECONDS * RENEW_SHARE:
            steps.append(RotationStep.ANNOUNCE)
    elif now - state.upcoming_since >= OVERLAP_SECONDS:
        steps.append(RotationStep.PROMOTE)
    if RotationStep.PROMOTE not in steps and state.former_until is not None and now >= state.former_until:
        steps.append(RotationStep.RETIRE)
    ageing = state.serving_until is None or state.serving_until - now < SERVING_SECONDS * RENEW_SHARE
    if RotationStep.PROMOTE in steps or ageing or not state.serving_current or set(state.serving_names) != set(names):
        steps.append(RotationStep.ISSUE)
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Material:
    """The content of the Secret: the authorities and the served certificate. Times are Unix seconds."""

    current: Pair | None = None
    upcoming: Pair | None = None
    upcoming_since: float | None = None
    former: str = ""
    former_until: float | None = None
    serving: Pair | None = None

    @property
    def bundle(self) -> str:
        """The certificates that workers trust, PEM."""
        authorities = [pair.certificate for pair in (self.current, self.upcoming) if pair is not None]
        return "".join([*authorities, self.former])


def state_of(material: Material) -> RotationState:
    """Return the facts that rotation depends on. Raises ValueError if a certificate cannot be read."""
    if material.current is None:
        return RotationState()
    authority = x509.load_pem_x509_certificate(material.current.certificate.encode())
    state = RotationState(
        current_until=authority.not_valid_after_utc.timestamp(),
        upcoming_since=material.upcoming_since if material.upcoming else None,
        former_until=material.former_until if material.former else None,
    )
    if material.serving is None:
        return state
    serving = x509.load_pem_x509_certificate(material.serving.certificate.encode())
    return replace(
        state,
        serving_until=serving.not_valid_after_utc.timestamp(),
        serving_names=_names_of(serving),
        serving_current=_signed_by(serving, authority),
    )


def apply_rotation(steps: Sequence[RotationStep], material: Material, names: Sequence[str], now: float) -> Material:
    """Return the material after the steps. Each call generates new keys."""
    for step in steps:
        if step is RotationStep.FOUND:
            material = Material(current=_authority(now))
        elif step is RotationStep.ANNOUNCE:
            material = replace(material, upcoming=_authority(now), upcoming_since=now)
        elif step is RotationStep.PROMOTE and material.current is not None:
            former, until = material.current.certificate, now + OVERLAP_SECONDS
            material = Material(material.upcoming, former=former, former_until=until, serving=material.serving)
        elif step is RotationStep.RETIRE:
            material = replace(material, former="", former_until=None)
        elif step is RotationStep.ISSUE and material.current is not None:
            material = replace(material, serving=_serving(material.current, names, now))
    return material


def report_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names under which pods can reach the report Service."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
    )


def _authority(now: float) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"activitypool report authority {int(now)}")])
    usage = _key_usage(signs_certificates=True)
    builder = (
        _builder(now, AUTHORITY_SECONDS)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _serving(authority: Pair, names: Sequence[str], now: float) -> Pair:
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic curve key: delete the Secret to have it made anew")
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    until = issuer.not_valid_after_utc.timestamp() - now
    builder = (
        _builder(now, min(SERVING_SECONDS, until))
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "activitypool reports")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _builder(now: float, seconds: float) -> x509.CertificateBuilder:
    begin = dt.datetime.fromtimestamp(now - BACKDATED_SECONDS, dt.UTC)
    end = dt.datetime.fromtimestamp(now + seconds, dt.UTC)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


def _names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.value.get_values_for_type(x509.DNSName))


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - any error means that our authority has not signed it
        return False
    return True
