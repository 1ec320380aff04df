"""Every fault of a task store has a reason, and a message that names the fix and never the URL's password."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from activity_operator.backlog.poll_rounds import SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.backlog.taskstore import TaskStoreReader
from activity_worker.errors import DeniedError, MissingError, SourceError, UnreachableError
from activity_worker.steps.store.db_errors import translated
from activity_worker.steps.store.task_store import TaskStore
from tests.cluster import certificates
from tests.integration.backlog.counted import Counted
from tests.integration.backlog.stores import opened, put
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer, execute, postgres_server

PASSWORD, WRONG = "hunter2", "tr0ub4dor"
#: The user `plain` may connect without TLS, `safe` only with TLS; both need their password.
LOGINS = "hostnossl all safe 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 scram-sha-256"
STORE = {"source": {"taskStore": {"urlSecretRef": {"name": "shop", "key": "url"}}}}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(durable=False, tls=True, logins=LOGINS) as running:
        yield running


@pytest.fixture(scope="module")
def no_tls() -> Iterator[PostgresServer]:
    with postgres_server(durable=False) as running:
        yield running


@pytest.fixture(autouse=True)
async def users(server: PostgresServer) -> None:
    """Make users with a password; `plain` and `safe` may read the only instance."""
    async with opened(server.url) as store:
        if await store.listed():
            return
        await put(store)
    for user in ("plain", "safe", "blind"):
        await execute(server.url, f"CREATE USER {user} PASSWORD '{PASSWORD}'")
        if user != "blind":
            await execute(server.url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}")


async def says(url: str) -> tuple[str, str]:
    """Return reason and message of the operator's count at this URL; check that neither contains a password."""
    counted = Counted()
    counted.secrets["shop"] = url
    counted.order("orders", STORE)
    try:
        error = await counted.fails("orders")
        assert counted.tasks("orders") is None
    finally:
        await counted.stop()
    for secret in (PASSWORD, WRONG):
        assert secret not in error.message
    return error.reason, error.message


async def due(url: str) -> int:
    """Return the operator's count."""
    counter = TaskStoreReader()
    try:
        (found,) = await counter.read(SourceEndpoint(url, 1.0), [""])
    finally:
        await counter.close(SourceEndpoint(url, 1.0))
    assert isinstance(found, int)
    return found


async def seen(url: str) -> int:
    """Return the number of instances that a worker finds."""
    store = await TaskStore.open(url, migrate=False)
    try:
        return len(await store.listed())
    finally:
        await store.close()


@pytest.mark.parametrize(("user", "password"), [("plain", WRONG), ("nobody", PASSWORD), ("plain", "")])
async def test_refused_user_or_password(server: PostgresServer, user: str, password: str) -> None:
    url = server.url_of(user, password=password)
    reason, message = await says(url)

    assert reason == "AccessDenied"
    assert f"the task store at 127.0.0.1:{server.port}/postgres refuses the operator: correct user, password" in message
    with pytest.raises(DeniedError) as denied, translated():
        await seen(url)
    assert "correct them in the URL (ACTIVITY_STORE_URL; in a pool, its Secret" in str(denied.value)
    assert f'password authentication failed for user "{user}"' in str(denied.value)
    assert not [secret for secret in (PASSWORD, WRONG) if secret in str(denied.value)]


async def test_user_without_rights_to_the_table(server: PostgresServer) -> None:
    reason, message = await says(server.url_of("blind", password=PASSWORD))

    assert reason == "AccessDenied"
    assert "rights (SELECT on activitypool_instances) (permission denied for table activitypool_instances)" in message


async def test_database_that_does_not_exist(server: PostgresServer) -> None:
    url = server.url_of("plain", password=PASSWORD, database="gone")
    reason, message = await says(url)

    assert reason == "SecretUnusable"
    assert f"127.0.0.1:{server.port}/gone is not there: create the database, or correct its name in the URL" in message
    with pytest.raises(MissingError), translated():
        await seen(url)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
async def test_unreachable_server(host: str) -> None:
    url = f"postgresql://plain:{PASSWORD}@{host}:{free_port()}/tasks"
    reason, message = await says(url)

    assert reason == "BackendUnreachable"
    assert f"no answer from the task store at {host}:" in message
    assert "check its address in the pool's source and the network's rules for the operator" in message
    with pytest.raises(UnreachableError), translated():
        await seen(url)


@pytest.mark.parametrize("url", [f"mysql://me:{PASSWORD}@db/tasks", f"postgresql://me:{PASSWORD}@db:x/tasks", PASSWORD])
async def test_secret_without_a_store_url(url: str) -> None:
    reason, message = await says(url)

    assert reason == "SecretUnusable"
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in message
    with pytest.raises(SourceError), translated():
        await seen(url)


def options(server: PostgresServer, how: str) -> str:
    """Return the options of a URL, with the CA's file and its text filled in."""
    assert server.ca is not None
    file = server.ca.certificate_file
    return how.replace("FILE", str(file)).replace("TEXT", quote(file.read_text()))


@pytest.mark.parametrize(
    "how",
    [
        "",
        "sslmode=prefer",
        "sslmode=require",
        "sslmode=require&sslrootcert=FILE",
        "sslmode=verify-ca&sslrootcert=FILE",
        "sslmode=verify-full&sslrootcert=FILE",
        "sslmode=verify-full&ssl_ca_data=TEXT",
        "sslmode=verify-full&sslrootcert=FILE&connect_timeout=5&application_name=shop",
    ],
)
async def test_worker_and_operator_use_tls_with_the_same_url(server: PostgresServer, how: str) -> None:
    url = server.url_of("safe", password=PASSWORD, options=options(server, how))

    assert await due(url) == await seen(url) == 1


async def test_worker_and_operator_are_refused_alike_if_tls_is_required(server: PostgresServer) -> None:
    url = server.url_of("safe", password=PASSWORD, options="sslmode=disable")
    reason, message = await says(url)

    assert reason == "AccessDenied"
    assert 'pg_hba.conf rejects connection for host "127.0.0.1"' in message
    with pytest.raises(DeniedError), translated():
        await seen(url)


async def test_server_without_tls(no_tls: PostgresServer) -> None:
    assert await due(no_tls.url) == 0
    url = no_tls.url_of("test", options="sslmode=require")
    reason, message = await says(url)

    assert reason == "TlsFailed"
    assert "check its certificate, and sslmode and the CA in the URL" in message
    with pytest.raises(UnreachableError), translated():
        await seen(url)


@pytest.mark.parametrize("how", ["sslrootcert=FILE", "ssl_ca_data=TEXT", "sslrootcert=system", ""])
async def test_certificate_of_another_ca_than_the_urls(server: PostgresServer, tmp_path: Path, how: str) -> None:
    other = certificates.authority(tmp_path, "other").certificate_file
    how = how.replace("FILE", str(other)).replace("TEXT", quote(other.read_text()))
    url = server.url_of("safe", password=PASSWORD, options=f"sslmode=verify-ca&{how}".rstrip("&"))
    reason, message = await says(url)

    assert reason == "TlsFailed"
    assert "certificate" in message.rpartition("(")[2]
    with pytest.raises(UnreachableError), translated():
        await seen(url)


async def test_certificate_for_another_host(server: PostgresServer) -> None:
    how = options(server, "sslmode=verify-full&sslrootcert=FILE")
    url = server.url_of("safe", password=PASSWORD, options=how).replace("127.0.0.1", "localhost")
    reason, message = await says(url)

    assert reason == "TlsFailed"
    assert "certificate is not valid for 'localhost'" in message
    assert await due(url.replace("verify-full", "verify-ca")) == 1


async def test_ca_file_that_only_the_worker_has(server: PostgresServer) -> None:
    how = "sslmode=verify-full&sslrootcert=/etc/shop/ca.crt"
    url = server.url_of("safe", password=PASSWORD, options=how)
    reason, message = await says(url)

    assert reason == "SecretUnusable"
    assert "what sslrootcert says cannot be read here (FileNotFoundError)" in message
    assert "must be in the operator's container, too: give the CA itself as ssl_ca_data instead" in message
    with pytest.raises(SourceError), translated():
        await seen(url)


async def test_operators_client_certificate_is_not_used(server: PostgresServer) -> None:
    how = "sslmode=require&sslcert=/etc/operator/tls.crt&sslkey=/etc/operator/tls.key"
    reason, message = await says(server.url_of("safe", password=PASSWORD, options=how))

    assert reason == "SecretUnusable"
    assert "the operator lends pools no client certificate (sslcert, sslkey)" in message


async def test_password_in_the_operators_environment_is_not_used(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)

    assert await seen(server.url_of("plain")) == 1
    assert (await says(server.url_of("plain")))[0] == "AccessDenied"


async def test_refusal_has_its_own_message_not_the_one_for_unreachable() -> None:
    with pytest.raises(SourceProblemError) as refused:
        await due("postgresql://db/tasks?host=elsewhere")

    assert refused.value.reason == "SecretUnusable"
