"""Queries to a real Prometheus server as a lower bound beside any source: results, faults and cost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from activity_operator.backlog.poll_rounds import SourceEndpoint
from activity_operator.backlog.prometheus import AT_ONCE, PrometheusReader
from activity_operator.backlog.protocol import SourceProblemError
from tests.eventually import eventually
from tests.integration.backlog.counted import Counted
from tests.servers.ports import free_port
from tests.servers.prometheus import PrometheusServer, prometheus_server

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
#: A user with the bcrypt hash of a password that the tests do not use.
SOMEBODY = {"somebody": "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"}


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    with prometheus_server() as running:
        yield running


@pytest.fixture(autouse=True)
async def scraped(server: PrometheusServer) -> None:
    """Wait until the server has scraped itself once."""

    async def counted() -> bool:
        return isinstance(await ask(server.url, 'sum(up{job="self"})'), int)

    await eventually("the server has scraped itself", counted)


async def ask(url: str, *queries: str, token: str = "") -> Any:
    """Return the answers to some queries; for one query, the answer itself."""
    counter, endpoint = PrometheusReader(), SourceEndpoint(url, 15.0, token)
    try:
        found = await counter.read(endpoint, queries)
    finally:
        await counter.close(endpoint)
    return found[0] if len(queries) == 1 else list(found)


async def refusal(url: str, query: str, token: str = "") -> tuple[str, str]:
    """Return reason and message of a query that gives no number."""
    try:
        found = await ask(url, query, token=token)
    except SourceProblemError as problem:
        found = problem
    assert isinstance(found, SourceProblemError), found
    return found.reason, found.message


def source(url: str, query: str, *, interval: int = 1, **more: Any) -> dict[str, Any]:
    """Return the fields of a pool with an activity and a query."""
    watcher = {"serverUrl": url, "query": query, "intervalSeconds": interval, **more}
    return {"activityArn": ARN, "scaling": {"prometheus": watcher}}


@pytest.mark.parametrize(
    ("query", "tasks"),
    [
        ("vector(7)", 7),
        ("scalar(vector(3))", 3),
        ("vector(0.2)", 1),
        ("vector(41.5)", 42),
        ("vector(0)", 0),
        ("1e18 * 1e18", 1_000_000_000),
        ('sum(up{job="self"})', 1),
        ('sum(up{job="nobody"}) or vector(0)', 0),
        ("sum(prometheus_build_info)", 1),
    ],
)
async def test_number_is_the_count_of_waiting_tasks(server: PrometheusServer, query: str, tasks: int) -> None:
    assert await ask(server.url, query) == tasks


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("sum(nothing_of_this_name)", "has no result: write 'or vector(0)' where that means none"),
        ("prometheus_http_requests_total or up", "results: make one of them, with sum() for instance"),
        ("vector(0) / vector(0)", "gives nan, which is no number of tasks"),
        ("vector(1) / vector(0)", "gives inf, which is no number of tasks"),
        ("vector(-1)", "gives -1.0, which is no number of tasks"),
        ('"seven"', "gives no number, but a string"),
        ("up[1m]", "gives no number, but a matrix"),
        ("sum(", "refuses spec.scaling.prometheus.query: "),
        ("no_such_function(up)", 'unknown function with name "no_such_function"'),
        ('label_replace(up, "x y", "", "", "")', "refuses spec.scaling.prometheus.query: "),
        (
            'label_join({__name__=~".+"}, "a", "' + "x" * 1500 + '", "__name__", "job", "instance", "le", "quantile")',
            "is larger than 262144 bytes: make one number of it, with sum()",
        ),
    ],
)
async def test_result_that_is_no_number_is_an_error_with_the_fix(
    server: PrometheusServer, query: str, sentence: str
) -> None:
    reason, message = await refusal(server.url, query)

    assert reason == "QueryFailed"
    assert sentence in message
    assert len(message) < 400


async def test_documented_queries_work(server: PrometheusServer) -> None:
    answers = 'sum(nothing) or 0 * sum(up{job="self"} == 1)'
    gone = 'sum(nothing) or 0 * sum(up{job="nobody"} == 1)'
    working_hours = "vector(20) * (hour() >= bool 7) * (hour() < bool 9)"

    assert await ask(server.url, answers) == 0
    assert (await refusal(server.url, gone))[0] == "QueryFailed"
    assert await ask(server.url, working_hours) in (0, 20)
    assert await ask(server.url, working_hours.replace("hour()", "hour(vector(27000))")) == 20


async def test_failing_query_affects_its_own_pool_only(server: PrometheusServer) -> None:
    found = await ask(server.url, "vector(1)", "sum(", "vector(2)", "vector(1)")

    assert (found[0], found[2], found[3]) == (1, 2, 1)
    assert found[1].reason == "QueryFailed"


async def test_query_is_a_lower_bound_and_never_an_exact_count(server: PrometheusServer, counted: Counted) -> None:
    counted.order("resize", source(server.url, "vector(5)"))
    await counted.counts("resize", 5)

    signals, error = counted._signals.latest(("team", "resize"))
    assert [(count.tasks, count.exact) for count in signals] == [(5, False)]
    assert error is None


async def test_servers_own_numbers_are_followed(server: PrometheusServer, counted: Counted) -> None:
    counted.order("resize", source(server.url, 'sum(prometheus_http_requests_total{handler="/api/v1/query"})'))

    await counted.until("three different numbers are counted", lambda: len(set(counted.seen.get("resize", []))) >= 3)
    seen = counted.seen["resize"]
    assert seen == sorted(seen)


async def _served(session: aiohttp.ClientSession) -> tuple[float, float]:
    """Return how many connections the server has accepted, and how many queries it has answered."""
    async with session.get("/metrics") as reply:
        families = text_string_to_metric_families(await reply.text())
    samples = [sample for family in families for sample in family.samples]
    query = {"code": "200", "handler": "/api/v1/query"}
    accepted = [one.value for one in samples if one.name == "net_conntrack_listener_conn_accepted_total"]
    answered = [one.value for one in samples if one.labels == query and one.name == "prometheus_http_requests_total"]
    return sum(accepted), sum(answered)


async def test_five_hundred_pools_cost_one_query_each_in_parallel(
    server: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test counts queries instead of seconds; a round takes some 0.3 s on an idle machine.
    monkeypatch.setattr("activity_operator.backlog.prometheus.ANSWER_SECONDS", 90.0)
    async with aiohttp.ClientSession(server.url) as session:
        before = await _served(session)
        found = await ask(server.url, *(f"vector({number})" for number in range(500)))
        after = await _served(session)

    assert found == list(range(500))
    assert after[1] - before[1] == 500
    # One connection for each concurrent query, which is reused; the server's own scrape may need another one.
    assert AT_ONCE <= after[0] - before[0] < 2 * AT_ONCE


async def test_missing_credentials_are_reported_with_the_fix() -> None:
    with prometheus_server(users=SOMEBODY) as strict:
        for token in ("", "wrong"):
            reason, message = await refusal(strict.url, "vector(1)", token)
            assert reason == "AccessDenied"
            assert "give or correct spec.scaling.prometheus.tokenSecretRef (HTTP 401)" in message


async def test_refused_connection_is_reported() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    reason, message = await refusal(url, "vector(1)")

    assert reason == "BackendUnreachable"
    assert f"no answer from Prometheus at {url}" in message


async def test_server_without_tls_is_reported(server: PrometheusServer) -> None:
    reason, message = await refusal(server.url.replace("http", "https"), "vector(1)")

    assert reason == "TlsFailed"
    assert "check its certificate and spec.scaling.prometheus.serverUrl" in message


async def test_wrong_path_is_reported(server: PrometheusServer) -> None:
    reason, message = await refusal(f"{server.url}/elsewhere", "vector(1)")

    assert reason == "QueryFailed"
    assert "knows no /api/v1/query: correct spec.scaling.prometheus.serverUrl (HTTP 404)" in message


async def test_restart_is_reported_after_retries_and_last_number_is_kept(
    counted: Counted,
) -> None:
    with prometheus_server() as flaky:
        counted.order("resize", source(flaky.url, "vector(5)"))
        await counted.counts("resize", 5)
        flaky.stop()
        error = await counted.fails("resize")
        assert error.reason == "BackendUnreachable"
        assert counted.tasks("resize") == 5
        flaky.start()
        await counted.counts("resize", 5)


class Fake:
    """A web server that gives the test's answers and keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answer: Any = None
        self.url = ""
        self.slow: set[str] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = request.query.get("query", "")
        self.asked.append((query, request.headers.get("Authorization", "")))
        if query in self.slow:
            await asyncio.sleep(60)
        answer = self.answer() if callable(self.answer) else self.answer
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    one = Fake()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", one.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    one.url = f"http://127.0.0.1:{port}"
    yield one
    await runner.cleanup()


def vector(*numbers: str) -> dict[str, Any]:
    """Return an answer with these results."""
    result = [{"metric": {}, "value": [0, number]} for number in numbers]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


async def test_token_is_sent_to_the_server_only(fake: Fake) -> None:
    fake.answer = vector("4")
    assert await ask(fake.url, "q", token="hunter2") == 4
    assert fake.asked == [("q", "Bearer hunter2")]

    fake.asked.clear()
    elsewhere = {"Location": f"{fake.url.replace('127.0.0.1', 'localhost')}/other?leak=hunter2"}
    fake.answer = lambda: web.Response(status=302, headers=elsewhere)
    reason, message = await refusal(fake.url, "q", "hunter2")
    assert len(fake.asked) == 1, "a redirect was followed"
    assert reason == "QueryFailed"
    assert "leads elsewhere, which is not followed: correct spec.scaling.prometheus.serverUrl (HTTP 302)" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "umläut"])
async def test_secret_without_a_token_is_reported(fake: Fake, token: str) -> None:
    reason, message = await refusal(fake.url, "q", token)

    assert (reason, fake.asked) == ("SecretUnusable", [])
    assert token not in message


@pytest.mark.parametrize(
    ("status", "expected"), [(401, "AccessDenied"), (403, "AccessDenied"), (503, "BackendUnreachable")]
)
async def test_error_status_is_reported(fake: Fake, status: int, expected: str) -> None:
    fake.answer = lambda: web.Response(status=status, text="hunter2")

    reason, message = await refusal(fake.url, "q", "hunter2")
    assert reason == expected
    assert f"HTTP {status}" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text="<html>hello</html>", content_type="text/html"),
        lambda: web.Response(text="[" * 100_000, content_type="application/json"),
        lambda: web.Response(body=b"\xff\xfe", content_type="application/json"),
        lambda: web.json_response([1]),
    ],
)
async def test_server_that_is_no_prometheus_is_reported(fake: Fake, answer: Any) -> None:
    fake.answer = answer
    reason, message = await refusal(fake.url, "q")

    assert reason == "QueryFailed"
    assert "is it a Prometheus server?" in message


@pytest.mark.parametrize(
    "data", [None, 5, {}, {"resultType": "vector"}, {"resultType": "vector", "result": [5]},
        {"resultType": "vector", "result": [{"value": {"1": 2}}]}, {"resultType": "scalar", "result": [0]},
        {"resultType": "scalar", "result": [0, None]}, {"resultType": "scalar", "result": {"1": "5"}}],
)  # fmt: skip
async def test_answer_of_another_form_is_an_error(fake: Fake, data: Any) -> None:
    fake.answer = {"status": "success", "data": data}

    assert (await refusal(fake.url, "q"))[0] == "QueryFailed"


async def test_endless_answer_is_cut_off(fake: Fake) -> None:
    fake.answer = lambda: web.Response(body=b" " * 50_000_000, content_type="application/json")

    assert "is larger than 262144 bytes" in (await refusal(fake.url, "q"))[1]


async def test_slow_query_affects_its_own_pool_only(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activity_operator.backlog.prometheus.ANSWER_SECONDS", 0.5)
    fake.answer, fake.slow = vector("1"), {"slow"}
    quick, slow = await ask(fake.url, "quick", "slow")

    assert quick == 1
    assert slow.reason == "BackendUnreachable"
    assert f"no answer from Prometheus at {fake.url}" in slow.message
    assert (await refusal(fake.url, "slow"))[0] == "BackendUnreachable"
