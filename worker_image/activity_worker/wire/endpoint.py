"""Where a service is: region and URL, resolved the way botocore resolves them.

Order for the URL: what the caller says, AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, the profile's, then the region's
own (FIPS and dual-stack settings and other partitions included).
"""

import os
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError
from botocore.httpsession import DEFAULT_CA_BUNDLE

from activity_worker.wire.errors import WireError
from activity_worker.wire.session import create_client


@dataclass(frozen=True, slots=True)
class AwsEndpoint:
    """The URL, the region and name to sign with, and the trusted CAs (`ca_bundle`: a PEM file)."""

    url: str
    region: str
    signing_name: str
    ca_bundle: str


def resolve(session: Any, service: str, *, region: str | None, endpoint_url: str | None) -> AwsEndpoint:
    """Return the endpoint of `service` (botocore's name, such as `stepfunctions`). Takes about 0.1 s, once a client.

    Raises WireError `NoRegion` when no region is configured and `InvalidEndpoint` when the URL cannot be used.
    """
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
    url = client.meta.endpoint_url
    signing_name = client.meta.service_model.signing_name
    client.close()
    return AwsEndpoint(url, region, signing_name, session.get_config_variable("ca_bundle") or DEFAULT_CA_BUNDLE)


def region_of(arn: str) -> str:
    """Return the region in an ARN, or nothing if there is none."""
    parts = arn.split(":")
    return parts[3] if len(parts) > 5 else ""
