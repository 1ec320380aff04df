"""Keys of a pod's role without botocore: EKS's web identity (IRSA) and EKS Pod Identity.

botocore and its model of the security token service take as much processor time as the rest of a worker's start. One
call is made here. Whatever is not its plain success is left to botocore, with its retries and its errors.
"""

import datetime as dt
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as ET

from activity_worker.wire.plain_environment import plain_endpoint
from activity_worker.wire.signing import Keys
from activity_worker.wire.temporary_keys import TemporaryKeys
from activity_worker.wire.transport import has_proxy

_TIMEOUT_SECONDS: Final = 5.0
_MAX_ANSWER_BYTES: Final = 65_536
_SESSION_NAME: Final = "activitypool"
#: The addresses of EKS Pod Identity's agent.
_AGENTS: Final = frozenset({"169.254.170.23", "fd00:ec2::23"})
#: Variables by which botocore finds keys before a role's, or elsewhere.
_FOR_BOTOCORE: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_CREDENTIAL_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)


def role_keys(
    region: str, environment: Mapping[str, str] | None = None, now: Callable[[], float] = time.time
) -> TemporaryKeys | None:
    """Return the keys of the pod's role, or None where botocore has to look. Blocks for two calls' time at most.

    `environment` is the process's unless given; `now` returns Unix seconds.
    """
    environment = os.environ if environment is None else environment
    regional = environment.get("AWS_STS_REGIONAL_ENDPOINTS", "regional") == "regional"
    if any(environment.get(name) for name in _FOR_BOTOCORE) or not regional:
        return None
    try:
        if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            return _of_web_identity(region, environment, now)
        if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            return _of_pod_identity(environment, now)
    except (OSError, HTTPException, ValueError, TypeError, LookupError, ET.ParseError):
        return None
    return None


def _of_web_identity(region: str, environment: Mapping[str, str], now: Callable[[], float]) -> TemporaryKeys | None:
    # The URL of another service changes nothing here.
    others = {name: value for name, value in environment.items() if not name.startswith("AWS_ENDPOINT_URL_")}
    url = environment.get("AWS_ENDPOINT_URL_STS")
    endpoint = plain_endpoint("sts", region=region, endpoint_url=url, environment=others)
    if endpoint is None:
        return None
    parts = urlsplit(endpoint.url)
    if has_proxy(parts.scheme, parts.hostname or ""):
        return None
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": environment["AWS_ROLE_ARN"],
        "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME") or _SESSION_NAME,
        "WebIdentityToken": Path(environment["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text(encoding="utf-8"),
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    answer = ET.fromstring(_ask(endpoint.url, "POST", headers, urlencode(form), endpoint.ca_bundle))  # noqa: S314 - of STS
    found = answer.find("{*}AssumeRoleWithWebIdentityResult/{*}Credentials")
    if found is None:
        raise LookupError("the answer has no Credentials")
    return _keys({part.tag.rpartition("}")[2]: part.text or "" for part in found}, "SessionToken", now)


def _of_pod_identity(environment: Mapping[str, str], now: Callable[[], float]) -> TemporaryKeys | None:
    # Profiles come before a container's keys, and the files of a profile are botocore's to read.
    others = {name: value for name, value in environment.items() if not name.startswith("AWS_ENDPOINT_URL")}
    url = environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    parts = urlsplit(url)
    address = ip_address(parts.hostname or "")
    configured = plain_endpoint("sts", region="us-east-1", endpoint_url=None, environment=others) is None
    if configured or parts.scheme != "http" or not (address.is_loopback or str(address) in _AGENTS):
        return None
    token = Path(environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text(encoding="utf-8")
    found = json.loads(_ask(url, "GET", {"Authorization": token, "Accept": "application/json"}))
    return _keys(found, "Token", now)


def _ask(url: str, method: str, headers: Mapping[str, str], body: str | None = None, ca_bundle: str = "") -> bytes:
    """Return the body of an answer of status 200; raises `OSError`, `HTTPException` and `ValueError`."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context(cafile=ca_bundle))
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    )
    try:
        connection.request(method, parts.path or "/", body, dict(headers))
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        return answer.read(_MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _keys(found: Any, token: str, now: Callable[[], float]) -> TemporaryKeys:
    parts = [found[name] for name in ("AccessKeyId", "SecretAccessKey", token, "Expiration")]
    if not all(isinstance(part, str) and part for part in parts):
        raise ValueError("keys without a part")
    access_key, secret_key, session, expiration = parts
    ends = dt.datetime.fromisoformat(expiration)
    if ends.tzinfo is None:
        raise ValueError("an end without a time zone")
    return TemporaryKeys(Keys(access_key, secret_key, session), ends.timestamp(), now)
