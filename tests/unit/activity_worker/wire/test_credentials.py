"""Credentials are resolved once for many callers, outside the event loop, and renewed before they expire."""

import asyncio
import threading
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, CredentialRetrievalError, EndpointConnectionError

from activity_worker.wire.credentials import CredentialsProvider, chain
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from activity_worker.wire.signing import Keys
from activity_worker.wire.temporary_keys import TemporaryKeys
from tests.clock import Clock


class Temporary:
    """Temporary credentials as in botocore, valid for `seconds`; read within the advisory period, they renew."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renewals = 0
        self.may_renew = threading.Event()
        self.may_renew.set()

    def refresh_needed(self, within: float) -> bool:
        return self.seconds < within

    def get_frozen_credentials(self) -> Any:
        if self.refresh_needed(900):
            self.may_renew.wait(10)
            self.renewals += 1
            self.seconds = 3600
        return Credentials(f"AK{self.renewals}", "secret", "token").get_frozen_credentials()


async def test_concurrent_callers_share_one_lookup_in_a_thread() -> None:
    threads: list[int] = []

    def load() -> Credentials:
        threads.append(threading.get_ident())
        return Credentials("AK", "secret")

    keeper = CredentialsProvider(load)
    found = await asyncio.gather(*(keeper.keys() for _ in range(50)))

    assert {("AK", "secret", None)} == {tuple(keys) for keys in found}
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_credentials_near_expiry_are_used_while_they_are_renewed() -> None:
    clock, temporary = Clock(), Temporary(3600)
    keeper = CredentialsProvider(lambda: temporary, clock)
    assert (await keeper.keys()).access_key == "AK0"
    temporary.seconds, clock.now = 600, 60.0
    temporary.may_renew.clear()

    assert (await keeper.keys()).access_key == "AK0"

    temporary.may_renew.set()
    await keeper.close()
    assert (await keeper.keys()).access_key == "AK1"


async def test_keys_of_a_role_are_loaded_again_before_their_end() -> None:
    clock = Clock()
    loaded: list[TemporaryKeys] = []

    def load() -> TemporaryKeys:
        keys = Keys(f"AK{len(loaded)}", "secret", "token")
        loaded.append(TemporaryKeys(keys, clock.now + 3600, lambda: clock.now))
        return loaded[-1]

    keeper = CredentialsProvider(load, clock)
    assert (await keeper.keys()).access_key == "AK0"
    clock.now += 2600
    assert (await keeper.keys()).access_key == "AK0"
    clock.now += 150
    await keeper.keys()
    await keeper.close()
    assert (await keeper.keys()).access_key == "AK1"
    clock.now += 3590
    assert (await keeper.keys()).access_key == "AK2"


async def test_expiring_credentials_are_renewed_once_for_all_callers() -> None:
    clock, temporary = Clock(), Temporary(3600)
    keeper = CredentialsProvider(lambda: temporary, clock)
    await keeper.keys()
    temporary.seconds, clock.now = 10, 60.0

    found = await asyncio.gather(*(keeper.keys() for _ in range(20)))

    assert {"AK1"} == {keys.access_key for keys in found}
    assert temporary.renewals == 1


async def test_cancelled_caller_does_not_cancel_the_shared_lookup() -> None:
    gate = threading.Event()

    def load() -> Credentials:
        gate.wait(10)
        return Credentials("AK", "secret")

    keeper = CredentialsProvider(load)
    first = asyncio.create_task(keeper.keys())
    second = asyncio.create_task(keeper.keys())
    await asyncio.sleep(0)
    first.cancel()
    gate.set()

    assert (await second).access_key == "AK"


async def test_refused_credentials_are_looked_up_again_at_a_limited_rate() -> None:
    clock = Clock()
    loads: list[int] = []

    def load() -> Credentials:
        loads.append(1)
        return Credentials(f"AK{len(loads)}", "secret")

    keeper = CredentialsProvider(load, clock)
    await keeper.keys()
    keeper.forget()
    await keeper.keys()
    keeper.forget()

    assert (await keeper.keys()).access_key == "AK2"
    clock.now = 31.0
    keeper.forget()
    assert (await keeper.keys()).access_key == "AK3"


def refusal(code: str, status: int) -> ClientError:
    response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "AssumeRole")


@pytest.mark.parametrize(
    ("raised", "kind", "code"),
    [
        (refusal("AccessDenied", 403), CredentialsMissingError, "AccessDenied"),
        (refusal("Throttling", 400), WireError, "Throttling"),
        (refusal("InternalFailure", 500), WireError, "InternalFailure"),
        (EndpointConnectionError(endpoint_url="https://sts"), EndpointUnreachableError, "EndpointUnreachable"),
        (CredentialRetrievalError(provider="p", error_msg="no"), CredentialsMissingError, "NoCredentials"),
    ],
)
async def test_failed_lookup_has_an_error_for_its_cause(raised: Exception, kind: type[WireError], code: str) -> None:
    def load() -> Any:
        raise raised

    with pytest.raises(WireError) as caught:
        await CredentialsProvider(load).keys()

    assert (kind, code) == (type(caught.value), caught.value.code)


async def test_error_of_an_empty_chain_names_the_variables() -> None:
    with pytest.raises(CredentialsMissingError, match="AWS_ACCESS_KEY_ID"):
        await CredentialsProvider(lambda: None).keys()


async def test_role_is_assumed_with_the_external_id() -> None:
    calls: list[dict[str, Any]] = []

    class Sts:
        def assume_role(self, **parameters: Any) -> dict[str, Any]:
            calls.append(parameters)
            keys = {"AccessKeyId": "ROLE", "SecretAccessKey": "s", "SessionToken": "t"}
            return {"Credentials": keys | {"Expiration": "2100-01-01T00:00:00Z"}}

    class Session:
        def get_component(self, name: str) -> "Session":
            assert name == "credential_provider"
            return self

        def load_credentials(self) -> Credentials:
            return Credentials("BASE", "secret")

        def create_client(self, service: str, **options: Any) -> Sts:
            assert (service, options["region_name"], options["aws_access_key_id"]) == ("sts", "eu-west-1", "BASE")
            return Sts()

    role = "arn:aws:iam::123456789012:role/pool"
    keeper = CredentialsProvider(chain(Session(), region="eu-west-1", role_arn=role, external_id="cluster/team"))

    assert (await keeper.keys())[:3] == ("ROLE", "s", "t")
    assert [(role, "cluster/team")] == [(call["RoleArn"], call["ExternalId"]) for call in calls]
