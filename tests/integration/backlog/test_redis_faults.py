"""Every fault of a Redis source has a reason and a message that names the fix and contains no secret."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cluster import certificates
from tests.integration.backlog.counted import Counted, push, with_ca
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer, redis_server

PASSWORD, WRONG = "hunter2", "tr0ub4dor"
USERS = [f"blind on >{PASSWORD} ~queue:* +ping", f"other on >{PASSWORD} ~queue:mails:* +llen"]


@pytest.fixture(scope="module")
def plain() -> Iterator[RedisServer]:
    with redis_server(password=PASSWORD, users=USERS) as server:
        yield server


@pytest.fixture(scope="module")
def secure() -> Iterator[RedisServer]:
    with redis_server(password=PASSWORD, tls=True, config={"bind": "127.0.0.1 127.0.0.2"}) as server:
        yield server


async def says(counted: Counted, url: str | None) -> tuple[str, str]:
    """Return reason and message of a pool with this URL, or without its Secret if the URL is None."""
    counted.pool("orders", url)
    error = await counted.fails("orders")
    assert PASSWORD not in error.message
    assert WRONG not in error.message
    assert counted.tasks("orders") is None
    return error.reason, error.message


async def test_missing_secret(counted: Counted) -> None:
    assert await says(counted, None) == (
        "SecretNotFound",
        "Secret shop in namespace team does not exist: create it",
    )


@pytest.mark.parametrize(
    "who", [f":{WRONG}@", f"nobody:{PASSWORD}@", ""], ids=["wrong password", "no such user", "no password"]
)
async def test_refused_user_or_password(counted: Counted, plain: RedisServer, who: str) -> None:
    reason, message = await says(counted, f"redis://{who}{plain.address}/0")

    assert reason == "AccessDenied"
    assert f"the Redis server redis://{plain.address}/0 refuses the operator: correct user, password or ACL" in message
    assert message.endswith("; its URL is in Secret shop, key url")


@pytest.mark.parametrize("user", ["blind", "other"])
async def test_user_without_rights_to_the_command_or_the_list(counted: Counted, plain: RedisServer, user: str) -> None:
    reason, message = await says(counted, f"redis://{user}:{PASSWORD}@{plain.address}/0")

    assert reason == "AccessDenied"
    assert "refuses the operator LLEN on queue:orders:waiting: correct user, password or ACL" in message


async def test_list_hidden_by_the_acl_affects_no_other_pool(counted: Counted, plain: RedisServer) -> None:
    counted.pool("mails", f"redis://other:{PASSWORD}@{plain.address}/0")
    counted.pool("orders")

    assert (await counted.fails("orders")).reason == "AccessDenied"
    await counted.counts("mails", 0)


async def test_key_of_another_type_affects_its_own_pool_until_it_is_deleted(
    counted: Counted, plain: RedisServer
) -> None:
    plain.say("SET", "queue:odd:waiting", "text")
    push(plain, "even", 2)
    counted.pool("even", plain.url)
    counted.pool("odd")
    error = await counted.fails("odd")
    assert error.reason == "QueryFailed"
    assert "correct the queue's name, or remove the key" in error.message
    await counted.counts("even", 2)

    plain.say("DEL", "queue:odd:waiting", "queue:even:waiting")
    await counted.counts("odd", 0)


async def test_server_that_is_down(counted: Counted) -> None:
    reason, message = await says(counted, f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0")

    assert reason == "BackendUnreachable"
    assert "check its address in the pool's source and the network's rules" in message
    assert "nothing listens there" in message


async def test_name_that_does_not_resolve(counted: Counted) -> None:
    reason, message = await says(counted, f"redis://:{PASSWORD}@no-such-host.invalid/0")

    assert reason == "BackendUnreachable"
    assert "the host's name does not resolve" in message


async def test_database_that_does_not_exist(counted: Counted, plain: RedisServer) -> None:
    reason, message = await says(counted, plain.url.removesuffix("0") + "99")

    assert reason == "SecretUnusable"
    assert "correct the URL (NoDatabase" in message


async def test_certificate_of_an_unknown_ca(counted: Counted, secure: RedisServer) -> None:
    reason, message = await says(counted, secure.url.partition("?")[0])

    assert reason == "TlsFailed"
    assert "give its CA as ssl_ca_data" in message


async def test_certificate_of_another_ca_than_the_urls(counted: Counted, secure: RedisServer, tmp_path: Path) -> None:
    other = certificates.authority(tmp_path, "other").certificate_file.read_text()
    reason, message = await says(counted, f"{secure.url.partition('?')[0]}?ssl_ca_data={quote(other)}")

    assert reason == "TlsFailed"
    assert "the server's certificate is not trusted" in message


async def test_certificate_for_another_name(counted: Counted, secure: RedisServer) -> None:
    reason, message = await says(counted, with_ca(secure).replace("127.0.0.1", "127.0.0.2"))

    assert reason == "TlsFailed"
    assert "not trusted" in message


async def test_tls_url_for_a_server_without_tls(counted: Counted, plain: RedisServer) -> None:
    reason, message = await says(counted, plain.url.replace("redis:", "rediss:"))

    assert reason == "TlsFailed"
    assert "does it speak TLS on this port?" in message


async def test_plain_url_for_a_server_with_tls(counted: Counted, secure: RedisServer) -> None:
    reason, message = await says(counted, secure.url.partition("?")[0].replace("rediss:", "redis:"))

    assert reason in {"BackendUnreachable", "TlsFailed"}
    assert "rediss://" in message or "TLS" in message


async def test_url_with_files_that_the_operator_does_not_have(counted: Counted, secure: RedisServer) -> None:
    reason, message = await says(counted, secure.url)

    assert reason == "SecretUnusable"
    assert message.startswith("in Secret shop, key url: ")
    assert "give the CA as ssl_ca_data instead" in message


async def test_invalid_url_is_not_shown(counted: Counted) -> None:
    reason, message = await says(counted, PASSWORD)

    assert (reason, PASSWORD in message) == ("SecretUnusable", False)


async def test_corrected_secret_ends_the_fault(counted: Counted, plain: RedisServer) -> None:
    await says(counted, f"redis://:{WRONG}@{plain.address}/0")
    counted.secrets["shop"] = plain.url

    await counted.counts("orders", 0, 35.0)
