"""Where a service is: region and URL, resolved the way botocore resolves them.

Order for the URL: what the caller says, AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, the profile's, then the region's
own (FIPS and dual-stack settings and other partitions included).
"""

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from activity_worker.wire.errors import WireError
from activity_worker.wire.plain_environment import AwsEndpoint
from activity_worker.wire.session import create_client

#: The code of the error for a region that is none.
UNKNOWN_REGION: Final = "UnknownRegion"
#: For each service an operation that reads, and its parameters.
_HARMLESS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "stepfunctions": ("list_activities", {}),
    "cloudwatch": ("list_metrics", {}),
    "swf": ("list_domains", {"registrationStatus": "REGISTERED"}),
    "sts": ("get_caller_identity", {}),
}


def resolve(session: Any, service: str, *, region: str | None, endpoint_url: str | None) -> AwsEndpoint:
    """Return the endpoint of `service` (botocore's name, such as `stepfunctions`). Takes about 0.1 s, once a client.

    Raises WireError `NoRegion` when no region is configured, `UnknownRegion` when AWS has no such region and no
    other URL is configured, and `InvalidEndpoint` when the URL cannot be used.
    """
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - botocore, where the usual case does not do
    from botocore.httpsession import DEFAULT_CA_BUNDLE  # noqa: PLC0415

    # botocore alone reads only AWS_DEFAULT_REGION; AWS_REGION is what pods get from EKS, from us and from other SDKs.
    region = region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise WireError(
            "NoRegion", "no AWS region; give one, or set AWS_REGION or AWS_DEFAULT_REGION or the profile's region"
        )
    try:
        # The keys are never used: they keep botocore from resolving the credentials chain here, on the event loop.
        client = create_client(
            session,
            service,
            region,
            endpoint_url=endpoint_url or None,
            aws_access_key_id="unused",
            aws_secret_access_key="unused",  # noqa: S106
        )
    except (BotoCoreError, ValueError) as error:
        raise WireError("InvalidEndpoint", f"region {region!r}, endpoint URL {endpoint_url!r}: {error}") from error
    try:
        url = _called_url(client, service)
    except (BotoCoreError, ValueError) as error:
        raise WireError("InvalidEndpoint", f"region {region!r}, endpoint URL {endpoint_url!r}: {error}") from error
    finally:
        client.close()
    if f".{region}." in url and not _is_known(session, region):
        raise WireError(UNKNOWN_REGION, f"'{region}' is no region of AWS; write one such as us-east-1")
    signing_name = client.meta.service_model.signing_name
    bundle = session.get_config_variable("ca_bundle") or DEFAULT_CA_BUNDLE
    return AwsEndpoint(url, client.meta.region_name, signing_name, bundle)


class _Sending(Exception):  # noqa: N818 - it ends a request that must not be sent
    """A request is about to be sent to this URL."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


def _called_url(client: Any, service: str) -> str:
    """Return the URL that the client calls.

    `client.meta.endpoint_url` is that of an older table: in the partitions of governments it is another one as soon as
    dual-stack is set. The true one is known when a request is about to be sent; none is sent.
    """

    def stop(request: Any, **_: Any) -> None:
        raise _Sending(request.url)

    client.meta.events.register("before-send", stop)
    meta: str = client.meta.endpoint_url
    operation, parameters = _HARMLESS[service]
    try:
        getattr(client, operation)(**parameters)
    except _Sending as sending:
        called = urlsplit(sending.url)
        return meta if called.netloc == urlsplit(meta).netloc else f"{called.scheme}://{called.netloc}"
    raise AssertionError("botocore sends a request without its event before-send")


def _is_known(session: Any, region: str) -> bool:
    """Return whether a partition of AWS has the region, by botocore's list or by the form of its regions' names."""
    from botocore.exceptions import UnknownRegionError  # noqa: PLC0415

    try:
        session.get_partition_for_region(region)
    except UnknownRegionError:
        return False
    return True


def region_of(arn: str) -> str:
    """Return the region in an ARN, or nothing if there is none."""
    parts = arn.split(":")
    return parts[3] if len(parts) > 5 else ""
