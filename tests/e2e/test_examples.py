"""The examples, each deployed from its own files; `test_task_store.py` deploys the orders."""

import asyncio
import importlib.util
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from activity_worker.flows import Flow, FlowDefinition
from tests.cluster import catalogue, find_image, load_image
from tests.cluster.image_key import Recipe
from tests.e2e.harness import CREDENTIALS, RESOURCES, ROOT, SHORT, ClusterHarness
from tests.e2e.jobs import PASSWORD
from tests.e2e.pool import Pool
from tests.e2e.secret_pool import SecretPool
from tests.servers.redis import RedisServer, redis_server

pytestmark = pytest.mark.timeout(1800)

EXAMPLES = ROOT / "examples"
IMAGE = b"P6 4 2 255\n" + bytes(range(24))
SMALL = b"P6 2 1 255\n" + bytes([0, 1, 2, 6, 7, 8])


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / path).read_text(encoding="utf-8")))


def image_of(example: str) -> str:
    return loaded(catalogue.example(example))


def loaded(recipe: Recipe) -> str:
    """Return the tag of an image that pods can use from now on."""
    image = find_image(recipe)
    load_image(image)
    return image.tag


def small_container(manifest: dict[str, Any], *environment: dict[str, str]) -> None:
    """Give the worker's container these variables and the requests of a test, beside what the manifest says."""
    spec = manifest["spec"].setdefault("podTemplate", {}).setdefault("spec", {})
    (container,) = spec.setdefault("containers", [{"name": "worker"}])
    container |= {"env": [*container.get("env", []), *environment], "resources": RESOURCES}


def activity_pool(harness: ClusterHarness, namespace: str, example: str, image: str = "") -> Pool:
    """Apply the example's documents; only what depends on the cluster differs: ARN, image, endpoint, windows.

    `image` is the example's own unless given.
    """
    *others, manifest = documents(f"{example}/pool.yaml")
    for other in others:
        other["metadata"]["namespace"] = namespace
        harness.apply(other)
    pool = Pool(harness, namespace, manifest["metadata"]["name"], harness.machine(f"{example}-{namespace}"))
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"] |= {
        "activityArn": pool.tasks.activity,
        "handlerImage": image or image_of(example),
        "aws": {"endpointUrl": harness.emulator.in_cluster_url},
        "scaling": SHORT,
    }
    small_container(manifest, *CREDENTIALS)
    pool.apply_manifest(manifest)
    pool.wait_until("Ready", "True", "ScaledToZero")
    return pool


def test_resize_scales_an_image_in_a_pool_of_its_own_manifest(harness: ClusterHarness, namespace: str) -> None:
    pool = activity_pool(harness, namespace, "resize")

    (execution,) = pool.executions.start(image=b64encode(IMAGE).decode(), width=2)
    pool.wait_done()

    output = pool.tasks.output(execution)
    assert (b64decode(output["image"]), output["width"], output["height"]) == (SMALL, 2, 1)
    pool.assert_nothing_lost()
    pool.wait_until("Ready", "True", "ScaledToZero")


def test_wordcount_counts_a_text_that_its_manifest_mounts(harness: ClusterHarness, namespace: str) -> None:
    pool = activity_pool(harness, namespace, "wordcount")

    (execution,) = pool.executions.start(path="/texts/spring.txt")
    pool.wait_done()

    assert pool.tasks.output(execution) == {"lines": 3, "words": 13}
    pool.assert_nothing_lost()


def test_slim_image_runs_a_pool_of_step_functions(harness: ClusterHarness, namespace: str) -> None:
    pool = activity_pool(harness, namespace, "wordcount", loaded(catalogue.slim_example()))

    (execution,) = pool.executions.start(path="/texts/spring.txt")
    pool.wait_done()

    assert pool.tasks.output(execution) == {"lines": 3, "words": 13}
    pool.assert_nothing_lost()


def test_shop_sends_an_order_through_a_pool_for_each_queue(harness: ClusterHarness, namespace: str) -> None:
    image = image_of("flows")
    with shop_server(harness) as server:
        pools = [
            SecretPool(harness, namespace, manifest["metadata"]["name"], secret="shop-redis")
            for manifest in documents("flows/pools.yaml")
        ]
        pools[0].put_url(f"redis://:{PASSWORD}@{harness.cluster.host_ip}:{server.port}/0")
        pools[0].let_operator_read()
        for pool, manifest in zip(pools, documents("flows/pools.yaml"), strict=True):
            manifest["metadata"]["namespace"] = namespace
            manifest["spec"] |= {"handlerImage": image, "scaling": SHORT}
            small_container(manifest)
            pool.apply_manifest(manifest)
        for pool in pools:
            pool.wait_until("Ready", "True", "ScaledToZero")

        fields = asyncio.run(_send_an_order(server))

        assert fields["parcels"] == 2
        assert all(pool.peak() >= 1 for pool in pools)
        for pool in pools:
            pool.wait_zero()


@contextmanager
def shop_server(harness: ClusterHarness) -> Iterator[RedisServer]:
    """Start a Redis server that pods reach."""
    with redis_server(password=PASSWORD, config={"bind": f"127.0.0.1 {harness.cluster.host_ip}"}) as server:
        yield server


async def _send_an_order(server: RedisServer) -> dict[str, Any]:
    async with Flow.open(_shop(), server.url) as flow:
        order = await flow.create({"customer": 62, "items": ["pen", "paper"]})
        return dict((await flow.wait(order, timeout_seconds=300)).fields)


def _shop() -> FlowDefinition:
    """Return the flow of `examples/flows/shop.py`."""
    spec = importlib.util.spec_from_file_location("shop", EXAMPLES / "flows" / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    definition: FlowDefinition = module.SHOP
    return definition
