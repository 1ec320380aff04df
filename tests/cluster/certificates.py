"""Certificates, keys and kubeconfigs of one cluster: made once per run directory, valid for a year."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = dt.timedelta(days=365)
CLOCK_SLACK = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its key, and the files both are kept in."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    certificate_file: Path
    key_file: Path


@dataclass(frozen=True)
class Issued:
    """Files of a certificate and of its key."""

    certificate: Path
    key: Path


def authority(folder: Path, name: str) -> Authority:
    """Return the authority kept in `folder` under `name`, making it on the first call."""
    certificate_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    if not certificate_file.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"activitypool-{name}")])
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        _write_key(key_file, key)
        _write(certificate_file, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    loaded = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{key_file} holds a {type(loaded).__name__}, not an elliptic-curve key: delete it")
    return Authority(certificate, loaded, certificate_file, key_file)


def issue(
    by: Authority, folder: Path, name: str, *, user: str, groups: Iterable[str] = (), addresses: Iterable[str] = ()
) -> Issued:
    """Return the certificate kept in `folder` under `name`, issuing it on the first call.

    `user` is the common name, `groups` the organisations. With `addresses` (DNS names or IPs) it is a server
    certificate as well as a client certificate.
    """
    issued = Issued(folder / f"{name}.crt", folder / f"{name}.key")
    if issued.certificate.exists():
        return issued
    key = ec.generate_private_key(ec.SECP256R1())
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    builder = _builder(subject, by.certificate.subject, key.public_key())
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if names := [_general_name(address) for address in addresses]:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    # Python 3.13 verifies strictly and refuses a certificate without this extension.
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    _write_key(issued.key, key)
    _write(issued.certificate, builder.sign(by.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return issued


def signing_key(folder: Path, name: str) -> Path:
    """Return the RSA key that signs ServiceAccount tokens, making it on the first call."""
    path = folder / f"{name}.key"
    if not path.exists():
        _write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    return path


def kubeconfig(path: Path, *, server: str, by: Authority, client: Issued) -> Path:
    """Write a kubeconfig for `client` to `path` (mode 0600), with the certificates inside."""
    inline = {
        "certificate-authority-data": _base64(by.certificate_file),
        "client-certificate-data": _base64(client.certificate),
        "client-key-data": _base64(client.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "activitypool", "cluster": {"server": server, **_only(inline, "certificate-authority-data")}}
        ],
        "users": [{"name": "user", "user": _only(inline, "client-certificate-data", "client-key-data")}],
        "contexts": [{"name": "activitypool", "context": {"cluster": "activitypool", "user": "user"}}],
        "current-context": "activitypool",
    }
    _write(path, json.dumps(document, indent=1).encode(), mode=0o600)
    return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - CLOCK_SLACK).not_valid_after(now + VALID_FOR)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    # PKCS#1/SEC1 rather than PKCS#8: the token signer of Kubernetes reads both, some older clients only these.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    _write(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), mode=0o600)


def _write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=mode)
    path.write_bytes(content)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _only(values: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: values[key] for key in keys}
