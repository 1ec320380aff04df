"""The order example as a pool: from zero to work and back, and right in the end whoever is killed on the way."""

import random
import time

import pytest

from tests.cluster.shell import ClusterError
from tests.e2e import deaths
from tests.e2e.orders import RIGHT, SECRET, Shop, a_shop
from tests.e2e.stage import Stage

#: The killing in its worst case, and three waits of PATIENCE around it.
pytestmark = pytest.mark.timeout(2700)

#: How many are killed and how many of them at work, each at least; in how long at most; the seconds from one to the
#: next, at least and at most.
KILLINGS, AT_WORK = 15, 4
KILLING_SECONDS = 900.0
BETWEEN_SECONDS = (0.5, 4.0)
FEW = 12  # orders under way below which more are given
#: An effect cannot be taken back from who stood still in it: a machine that stalls must not outlast the lease. (Each
#: lost call waits that long for the next worker, and counts as lost only then.)
LEASE_SECONDS = 20
DEATHS = (deaths.delete_at_once, deaths.kill_handler, deaths.kill_supervisor, deaths.delete)


def test_orders_start_an_empty_pool_which_delivers_or_refunds_them_and_goes_back_to_zero(
    stage: Stage, namespace: str
) -> None:
    with a_shop(stage, namespace, "orders") as shop:
        shop.put_secret(shop.url("orders"))
        shop.apply(maxWorkers=4)
        shop.wait_until("Ready", "False", "SecretForbidden")
        assert f"may not read Secret {SECRET} in namespace {namespace}" in shop.message("Ready")
        shop.let_operator_read()
        shop.wait_until("Ready", "True", "ScaledToZero")
        shop.wait_for("the store has been counted", lambda: shop.status.get("backlog") == 0)

        shop.order(["teapot"] * 5 + ["samovar"] * 5 + ["anvil"] * 2)
        # Now: the status keeps the last decisions only.
        shop.wait_for("it grows to its limit", lambda: shop.peak() == 4)
        shop.wait_ended()
        shop.wait_empty()
        shop.wait_until("Ready", "True", "ScaledToZero")

        shop.assert_all_right()
        assert shop.peak() <= 4
        assert shop.status["decisions"][-1]["desired"] == 0
        shop.wait_for("nothing waits", lambda: shop.status.get("backlog") == 0)


def test_a_wrong_password_is_said_and_a_corrected_secret_is_read_without_a_change_of_the_pool(
    stage: Stage, namespace: str
) -> None:
    with a_shop(stage, namespace, "locked") as shop:
        shop.let_operator_read()
        shop.apply(maxWorkers=1)
        shop.wait_until("Ready", "False", "SecretNotFound")
        shop.put_secret(shop.url("orders").replace(shop.password, "guessed"))
        shop.wait_until("Ready", "False", "AccessDenied")
        message = shop.message("Ready")
        assert f"the task store at {stage.cluster.host_ip}:{shop.server.port}/orders refuses the operator" in message
        assert "guessed" not in message

        shop.put_secret(shop.url("orders"))
        shop.order(["teapot"])
        shop.wait_ended()
        shop.assert_all_right()


def test_every_order_ends_right_whoever_is_killed_whenever(stage: Stage, namespace: str) -> None:
    rng = random.Random(7)
    with a_shop(stage, namespace, "killed") as shop:
        shop.put_secret(shop.url("orders"))
        shop.let_operator_read()
        store = {"urlSecretRef": {"name": SECRET, "key": "url"}, "leaseSeconds": LEASE_SECONDS}
        shop.apply(maxWorkers=4, source={"taskStore": store}, pace=0.6, drain={"timeoutSeconds": 10})
        shop.order([*RIGHT, *_orders(rng, 40)])
        killed = _kill_for_a_while(shop, rng)
        shop.wait_ended()
        shop.wait_empty()
        shop.assert_all_right()
        assert killed >= KILLINGS, "hardly anybody was killed"
        assert shop.lost() >= AT_WORK, "hardly anybody was killed at work"


def _kill_for_a_while(shop: Shop, rng: random.Random) -> int:
    """Kill a random worker in a random way, again and again, until enough died at work; returns how many died.

    Whether a kill comes between two calls is a matter of luck, so that there are orders for as long as it takes.
    """
    shop.wait_for("somebody works", lambda: bool(shop.ready()))
    killed, end = 0, time.monotonic() + KILLING_SECONDS
    while time.monotonic() < end and (killed < KILLINGS or shop.lost() < AT_WORK):
        if shop.due() < FEW:
            shop.order(_orders(rng, FEW))
        time.sleep(rng.uniform(*BETWEEN_SECONDS))
        workers = sorted(shop.ready())
        if not workers:
            continue
        try:
            rng.choice(DEATHS)(shop, rng.choice(workers))
            killed += 1
        except ClusterError:  # it has gone by itself, or not begun
            continue
    return killed


def _orders(rng: random.Random, number: int) -> list[str]:
    return [rng.choice(["teapot", "samovar", "samovar", "anvil"]) for _ in range(number)]
