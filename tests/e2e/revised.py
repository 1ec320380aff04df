"""Later versions of the handler's image, good and bad, under tags of their own."""

import tempfile
from pathlib import Path

from tests.cluster import build_image, load_image
from tests.cluster.image_key import full_name
from tests.e2e.stage import Stage

UNPULLABLE = "registry.invalid/handler:2"


def revised(stage: Stage, version: str, function: str = "handler:handle") -> str:
    """Build the handler's image anew, as this version, with `function` as its handler; returns its tag."""
    # Written out: buildah's cache takes two builds for the same that differ in their arguments only.
    lines = f"FROM {full_name(stage.handler)}\nLABEL version={version}\nENV ACTIVITY_HANDLER={function}\n"
    with tempfile.TemporaryDirectory() as folder:
        dockerfile = Path(folder) / "Dockerfile"
        dockerfile.write_text(lines)
        image = build_image(dockerfile, Path(folder), f"e2e-handler-{version}:dev")
    load_image(image)
    return image.tag


def crashing(stage: Stage) -> str:
    """Build an image whose handler is not there, so that its worker ends before its first report."""
    return revised(stage, "crashing", function="handler:absent")
