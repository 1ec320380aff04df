"""Our client of Step Functions when calls fail, against the fake."""

import asyncio
import gc
import json
import ssl
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activity_worker.testing import FakeSettings, Fault, StepFunctionsFake
from activity_worker.wire import transport
from activity_worker.wire.errors import EndpointUnreachableError, WireError
from activity_worker.wire.http_response import HttpResponse
from activity_worker.wire.stepfunctions import StepFunctionsClient
from tests.conformance.services import Service


@pytest.fixture
async def fake() -> AsyncIterator[StepFunctionsFake]:
    """A new fake for each test."""
    async with StepFunctionsFake() as fake:
        yield fake


@pytest.fixture
async def service(fake: StepFunctionsFake) -> AsyncIterator[Service]:
    """The client, with test credentials."""
    async with Service("fake", fake.url) as service:
        yield service


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Fault.THROTTLE, "throttled"), (Fault.DENY, "denied"), (Fault.SERVER_ERROR, "retryable")],
)
async def test_refusal_has_its_error_class_and_is_not_retried(
    fake: StepFunctionsFake, service: Service, fault: Fault, kind: str
) -> None:
    arn = fake.create_activity("a")
    fake.inject("DescribeActivity", fault)

    with pytest.raises(WireError) as caught:
        await service.client.describe_activity(arn)

    assert getattr(caught.value, kind)
    assert fake.counts["call:DescribeActivity"] == 1


async def test_lost_reply_is_an_error_and_the_call_takes_effect_once(fake: StepFunctionsFake, service: Service) -> None:
    (task,) = fake.schedule(fake.create_activity("a"))
    taken = await service.client.get_activity_task(task.activity_arn, "w")
    assert taken is not None
    fake.inject("SendTaskSuccess", Fault.DROP_REPLY)

    with pytest.raises(EndpointUnreachableError):
        await service.client.send_task_success(taken.token, "{}")

    assert (task.state, task.conclusions, task.refused) == ("succeeded", 1, 0)


async def test_refused_connection_names_the_endpoint(fake: StepFunctionsFake, service: Service) -> None:
    url = fake.url
    await fake.close()

    with pytest.raises(EndpointUnreachableError, match=url) as caught:
        await service.client.describe_activity("arn")

    assert caught.value.retryable


async def test_missing_answer_ends_in_a_read_timeout(fake: StepFunctionsFake, service: Service) -> None:
    fake.inject("DescribeActivity", Fault.HANG)

    with pytest.raises(EndpointUnreachableError, match="no answer in time") as caught:
        await service._caller.call("DescribeActivity", {"activityArn": "a"}, timeout_seconds=0.2)

    assert caught.value.code == "ReadTimeout"


async def test_poll_lasts_until_the_service_ends_it(service: Service) -> None:
    with pytest.raises(ValueError, match="65"):
        StepFunctionsClient(service._caller, read_timeout_seconds=60)


async def test_wrong_clock_is_corrected_once_by_the_services_clock(fake: StepFunctionsFake, service: Service) -> None:
    arn = fake.create_activity("a")
    fake.settings.clock_offset_seconds = 1800

    await service.client.describe_activity(arn)
    await service.client.describe_activity(arn)

    assert fake.counts["call:DescribeActivity"] == 3


async def test_wrong_clock_is_corrected_for_calls_at_the_same_time(fake: StepFunctionsFake, service: Service) -> None:
    arn = fake.create_activity("a")
    fake.settings.clock_offset_seconds = 1800

    await asyncio.gather(*(service.client.describe_activity(arn) for _ in range(4)))

    assert fake.counts["call:DescribeActivity"] == 8


async def test_bad_signature_with_a_right_clock_is_not_retried(fake: StepFunctionsFake, service: Service) -> None:
    arn = fake.create_activity("a")
    fake.inject("DescribeActivity", Fault.BAD_SIGNATURE)

    with pytest.raises(WireError, match="InvalidSignatureException"):
        await service.client.describe_activity(arn)

    assert fake.counts["call:DescribeActivity"] == 1


async def test_maximum_number_of_polls_does_not_block_other_calls(fake: StepFunctionsFake, service: Service) -> None:
    arn = fake.create_activity("a")
    client = StepFunctionsClient(service._caller, max_connections=2)
    polls = [asyncio.create_task(client.get_activity_task(arn, "w")) for _ in range(3)]
    await fake.until(lambda: fake.open_polls(arn) == 2)

    await client.describe_activity(arn)

    assert fake.counts["call:GetActivityTask"] == 2
    fake.schedule(arn, count=3)
    assert all(await asyncio.gather(*polls))


async def test_poll_1001_of_an_activity_is_throttled(fake: StepFunctionsFake, service: Service) -> None:
    fake.settings.activity_worker_limit = 1
    arn = fake.create_activity("a")
    poll = asyncio.create_task(service.client.get_activity_task(arn, "w"))
    await fake.until(lambda: fake.open_polls(arn) == 1)

    with pytest.raises(WireError, match="ActivityWorkerLimitExceeded") as caught:
        await service.client.get_activity_task(arn, "w")

    assert caught.value.throttled
    fake.schedule(arn)
    assert await poll is not None


async def test_aborted_poll_can_lose_a_task(fake: StepFunctionsFake, service: Service) -> None:
    """A poll must not be aborted: the fake then loses a task, as the service can."""
    arn = fake.create_activity("a")
    poll = asyncio.create_task(service.client.get_activity_task(arn, "w"))
    await fake.until(lambda: fake.open_polls(arn) == 1)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    await service.client.describe_activity(arn)  # when this is answered, the fake has seen the connection close

    (task,) = fake.schedule(arn)
    await fake.until(lambda: bool(fake.counts.get("handed_to_nobody")))

    assert task.state == "started"


async def test_token_input_and_output_are_never_shown(fake: StepFunctionsFake, service: Service) -> None:
    (task,) = fake.schedule(fake.create_activity("a"), '"secret input"')
    taken = await service.client.get_activity_task(task.activity_arn, "w")
    assert taken is not None
    await service.client.send_task_success(taken.token, '"secret output"')
    with pytest.raises(WireError) as caught:
        await service.client.send_task_success(taken.token, '"secret output"')

    shown = f"{taken!r} {taken} {caught.value!r} {task!r} {fake.state()}"

    assert "secret" not in shown
    assert taken.token not in shown


async def test_token_in_a_services_message_is_redacted(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def repeat(headers: object, body: bytes, *, timeout_seconds: float) -> HttpResponse:
        answer = {"__type": "com.amazonaws#InvalidToken", "message": "no such token: my-token"}
        return HttpResponse(400, {"x-amzn-requestid": "request-1"}, json.dumps(answer).encode())

    monkeypatch.setattr(service._caller._transport, "post", repeat)

    with pytest.raises(WireError) as caught:
        await service.client.send_task_heartbeat("my-token")

    assert str(caught.value) == "InvalidToken: no such token: ... (request request-1)"


async def test_closed_client_leaves_no_connection_open(fake: StepFunctionsFake) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        async with Service("fake", fake.url) as service:
            arn = fake.create_activity("a")
            await asyncio.gather(*(service.client.describe_activity(arn) for _ in range(20)))
        del service
        gc.collect()

    assert not [str(warning.message) for warning in warned]


async def test_environment_alone_is_enough_to_open_a_client(
    fake: StepFunctionsFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SFN", fake.url)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = StepFunctionsClient.open()

    await client.describe_activity(fake.create_activity("a"))
    await client.close()

    assert (fake.url, "eu-west-1") == (client.endpoint_url, client.region)


async def test_fake_is_inspected_and_controlled_over_http(fake: StepFunctionsFake, service: Service) -> None:
    import aiohttp

    arn = fake.create_activity("a")
    async with aiohttp.ClientSession(fake.url) as session:

        async def post(page: str, **body: Any) -> int:
            async with session.post(f"/_fake/{page}", json=body) as reply:
                return reply.status

        assert await post("tasks", activityArn=arn, count=2, heartbeatSeconds=5) == 200
        assert await post("faults", operation="GetActivityTask", kind="deny") == 200
        assert await post("settings", poll_hold_seconds=1) == 200
        assert await post("settings", no_such_setting=1) == 400
        assert await post("nowhere") == 404
        with pytest.raises(WireError, match="AccessDenied"):
            await service.client.get_activity_task(arn, "w")
        assert await service.client.get_activity_task(arn, "w") is not None
        async with session.get("/_fake/state") as reply:
            state = await reply.json()

    assert state["activities"][arn] == {"queued": 1, "open_polls": 0}
    assert state["faults"] == {"GetActivityTask:deny": 1}
    assert [task["state"] for task in state["tasks"]] == ["started", "scheduled"]
    assert fake.settings == FakeSettings(poll_hold_seconds=1.0)


async def test_empty_poll_returns_no_task(fake: StepFunctionsFake, service: Service) -> None:
    fake.settings.poll_hold_seconds = 0.01

    assert await service.client.get_activity_task(fake.create_activity("a"), "w") is None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = tmp_path_factory.mktemp("tls") / "fake.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


async def test_tls_trusts_only_the_bundle_of_the_environment(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with StepFunctionsFake(tls=tls) as fake:
        arn = fake.create_activity("a")
        stranger = StepFunctionsClient.open(region="us-east-1", endpoint_url=fake.url)
        with pytest.raises(EndpointUnreachableError, match="certificate"):
            await stranger.describe_activity(arn)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        friend = StepFunctionsClient.open(region="us-east-1", endpoint_url=fake.url)
        await friend.describe_activity(arn)
        await stranger.close()
        await friend.close()
    gc.collect()


def test_tls_contexts_are_shared(certificate: Path) -> None:
    assert transport._tls(str(certificate)) is transport._tls(str(certificate))
