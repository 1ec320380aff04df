"""The usual case of an AWS client without botocore: the region's own endpoint, or a URL that is given, and static keys.

botocore takes a third of a worker's start to import and to load its models. Everything that it can be told in other
ways (profiles and their files, FIPS, dual-stack, other partitions, URLs by variable) is its own to read: these
functions then return None.
"""

import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from activity_worker.wire.signing import Keys

#: The name in a URL and in a signature, for each service by botocore's name.
_NAMES: Final[Mapping[str, str]] = {"stepfunctions": "states", "swf": "swf", "sts": "sts"}
#: The variable of a service's own URL.
_URLS: Final[Mapping[str, str]] = {
    "stepfunctions": "AWS_ENDPOINT_URL_SFN",
    "swf": "AWS_ENDPOINT_URL_SWF",
    "sts": "AWS_ENDPOINT_URL_STS",
}
#: Variables that change every endpoint, and beginnings of their names.
_FOR_BOTOCORE: Final = (
    "AWS_DEFAULTS_MODE",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_DATA_PATH",
)
_FILES: Final = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_BOTO_FILES: Final = ("/etc/boto.cfg", "~/.boto")


@dataclass(frozen=True, slots=True)
class AwsEndpoint:
    """The URL, the region and name to sign with, and the trusted CAs (`ca_bundle`: a PEM file)."""

    url: str
    region: str
    signing_name: str
    ca_bundle: str


class StaticKeys:
    """Keys that never end, in the form of botocore's credentials."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def get_frozen_credentials(self) -> Keys:
        """Return the keys."""
        return self._keys


def plain_endpoint(
    service: str, *, region: str | None, endpoint_url: str | None, environment: Mapping[str, str] | None = None
) -> AwsEndpoint | None:
    """Return the endpoint that botocore would find, or None where only botocore can say.

    `environment` is the process's unless given.
    """
    environment = os.environ if environment is None else environment
    region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    data = _botocore_folder()
    if not region or service not in _NAMES or data is None or _is_configured(service, environment):
        return None
    if endpoint_url:
        parts = urlsplit(endpoint_url)
        # A region in the URL is checked against the list of regions, which botocore has.
        if parts.scheme not in {"http", "https"} or not parts.hostname or f".{region}." in endpoint_url:
            return None
    elif region not in _regions(data):
        return None
    url = endpoint_url or f"https://{_NAMES[service]}.{region}.amazonaws.com"
    return AwsEndpoint(url, region, _NAMES[service], environment.get("AWS_CA_BUNDLE") or str(data / "cacert.pem"))


def environment_keys(environment: Mapping[str, str] | None = None) -> StaticKeys | None:
    """Return the keys of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; None where they are missing or temporary.

    botocore's chain asks the environment first, unless a profile is given by name.
    """
    environment = os.environ if environment is None else environment
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key or environment.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    token = environment.get("AWS_SESSION_TOKEN") or environment.get("AWS_SECURITY_TOKEN")
    return StaticKeys(Keys(access_key, secret_key, token or None))


def _is_configured(service: str, environment: Mapping[str, str]) -> bool:
    if environment.get("AWS_ENDPOINT_URL") or environment.get(_URLS[service]):
        return True
    if any(name.startswith(_FOR_BOTOCORE) and value for name, value in environment.items()):
        return True
    files = (environment.get(name) or default for name, default in _FILES.items())
    return any(Path(name).expanduser().exists() for name in (*files, *_BOTO_FILES))


def _botocore_folder() -> Path | None:
    """Return botocore's folder without importing it."""
    spec = importlib.util.find_spec("botocore")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _regions(folder: Path) -> frozenset[str]:
    """Return the regions of the partition `aws`, whose endpoints all have the same form."""
    try:
        partitions = json.loads((folder / "data" / "partitions.json").read_bytes())["partitions"]
    except (OSError, ValueError, KeyError):
        return frozenset()
    return frozenset(
        region
        for partition in partitions
        if partition["id"] == "aws"
        for region in partition["regions"]
        if region.count("-") == 2
    )
