"""The order example as a pool: from zero to work and back, and with correct results whenever a worker is killed."""

import random
import time

import pytest

from tests.cluster.shell import ClusterError
from tests.e2e import deaths
from tests.e2e.harness import ClusterHarness
from tests.e2e.orders_pool import RIGHT, SECRET, OrdersPool, an_orders_pool

#: The worst case of the kills, and three waits of PATIENCE around them.
pytestmark = pytest.mark.timeout(2700)

#: The least number of kills, and of kills that lost a call; the most seconds that the kills take together; the least
#: and the most seconds between two kills.
KILLS, LOST_CALLS = 15, 4
KILLING_SECONDS = 900.0
BETWEEN_SECONDS = (0.5, 4.0)
FEW = 12  # orders under way; below this number, more orders are placed
#: A worker that stalls within an effect may complete it after its lease has expired, so a lease must be longer than a
#: machine stalls. (A lost call waits as long for the next worker, and counts as lost only then.)
LEASE_SECONDS = 20
DEATHS = (deaths.delete_at_once, deaths.kill_handler, deaths.kill_supervisor, deaths.delete)


def test_orders_start_an_empty_pool_which_goes_back_to_zero(harness: ClusterHarness, namespace: str) -> None:
    with an_orders_pool(harness, namespace, "orders") as shop:
        shop.put_url(shop.url("orders"))
        shop.apply(maxWorkers=4)
        forbidden = shop.wait_until("Ready", "False", "SecretForbidden")
        assert f"may not read Secret {SECRET} in namespace {namespace}" in forbidden
        shop.let_operator_read()
        shop.wait_until("Ready", "True", "ScaledToZero")
        shop.eventually("the store has been counted", lambda view: view.status.get("backlog") == 0)

        shop.order(["teapot"] * 5 + ["samovar"] * 5 + ["anvil"] * 2)
        shop.wait_ended()
        shop.wait_empty()
        shop.wait_until("Ready", "True", "ScaledToZero")
        zero = shop.wait_zero()

        shop.assert_all_right()
        assert shop.peak() == 4
        assert max(len(view.workers) for view in shop.since(0)) <= 4
        assert zero.status["backlog"] == 0


def test_wrong_password_is_reported_and_the_new_secret_is_read(harness: ClusterHarness, namespace: str) -> None:
    with an_orders_pool(harness, namespace, "locked") as shop:
        shop.let_operator_read()
        shop.apply(maxWorkers=1)
        shop.wait_until("Ready", "False", "SecretNotFound")
        shop.put_url(shop.url("orders").replace(shop.password, "guessed"))
        denied = shop.wait_until("Ready", "False", "AccessDenied")
        assert f"the task store at {harness.cluster.host_ip}:{shop.server.port}/orders refuses the operator" in denied
        assert "guessed" not in denied

        shop.put_url(shop.url("orders"))
        shop.order(["teapot"])
        shop.wait_ended()
        shop.assert_all_right()


def test_every_order_ends_right_whenever_workers_are_killed(harness: ClusterHarness, namespace: str) -> None:
    rng = random.Random(7)
    with an_orders_pool(harness, namespace, "killed") as shop:
        shop.put_url(shop.url("orders"))
        shop.let_operator_read()
        store = {"urlSecretRef": shop.reference(), "leaseSeconds": LEASE_SECONDS}
        shop.apply(maxWorkers=4, source={"taskStore": store}, pace=0.6, drain={"timeoutSeconds": 10})
        shop.order([*RIGHT, *_orders(rng, 40)])
        kills = _kill_for_a_while(shop, rng)
        shop.wait_ended()
        shop.wait_empty()

        shop.assert_all_right()
        assert kills >= KILLS, "too few workers were killed"
        assert shop.lost_calls() >= LOST_CALLS, "too few workers were killed at work"


def _kill_for_a_while(shop: OrdersPool, rng: random.Random) -> int:
    """Kill a random worker in a random way, repeatedly, until enough calls are lost; return the number of kills.

    Chance decides whether a kill hits a call, so orders are placed for as long as it takes.
    """
    shop.eventually("has a worker", lambda view: view.ready)
    kills, end = 0, time.monotonic() + KILLING_SECONDS
    while time.monotonic() < end and (kills < KILLS or shop.lost_calls() < LOST_CALLS):
        if len(shop.incomplete()) < FEW:
            shop.order(_orders(rng, FEW))
        time.sleep(rng.uniform(*BETWEEN_SECONDS))
        workers = sorted(shop.now.ready)
        if not workers:
            continue
        try:
            rng.choice(DEATHS)(shop, rng.choice(workers))
            kills += 1
        except ClusterError:  # the worker has gone by itself, or its process has not begun
            continue
    return kills


def _orders(rng: random.Random, number: int) -> list[str]:
    return [rng.choice(["teapot", "samovar", "samovar", "anvil"]) for _ in range(number)]
