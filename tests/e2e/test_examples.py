"""The example of an activity's handler, deployed from its own files; `test_task_store.py` deploys the orders."""

from base64 import b64decode, b64encode

import yaml

from tests.cluster import catalogue, find_image, load_image
from tests.e2e.pool import Pool
from tests.e2e.stage import CREDENTIALS, RESOURCES, ROOT, SHORT, Stage

IMAGE = b"P6 4 2 255\n" + bytes(range(24))
SMALL = b"P6 2 1 255\n" + bytes([0, 1, 2, 6, 7, 8])


def test_resize_scales_an_image_in_a_pool_of_its_own_manifest(stage: Stage, namespace: str) -> None:
    image = find_image(catalogue.resize())
    load_image(image)
    manifest = yaml.safe_load((ROOT / "examples" / "resize" / "pool.yaml").read_text(encoding="utf-8"))
    pool = Pool(stage, namespace, manifest["metadata"]["name"], stage.machine(f"resize-{namespace}"))
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"] |= {
        "activityArn": pool.tasks.activity,
        "handlerImage": image.tag,
        "aws": {"endpointUrl": stage.emulator.in_cluster_url},
        "scaling": SHORT,
        "podTemplate": {
            "spec": {"containers": [{"name": "worker", "env": CREDENTIALS, "resources": RESOURCES}]},
        },
    }
    pool.apply_manifest(manifest)
    pool.wait_until("Ready", "True", "ScaledToZero")

    (execution,) = pool.executions.start(image=b64encode(IMAGE).decode(), width=2)
    pool.wait_done()

    output = pool.tasks.output(execution)
    assert (b64decode(output["image"]), output["width"], output["height"]) == (SMALL, 2, 1)
    pool.assert_nothing_lost()
    pool.wait_until("Ready", "True", "ScaledToZero")
