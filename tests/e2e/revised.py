"""Later versions of the handler's image, good and bad, under tags of their own."""

from pathlib import Path

from tests.cluster import build_image, load_image
from tests.cluster.image_key import full_name
from tests.e2e.stage import Stage

UNPULLABLE = "registry.invalid/handler:2"


def revised(stage: Stage, version: str, function: str = "handler:handle") -> str:
    """Build the handler's image anew, as this version, with `function` as its handler; returns its tag."""
    here = Path(__file__).parent
    arguments = {"HANDLER_IMAGE": full_name(stage.handler), "VERSION": version, "FUNCTION": function}
    image = build_image(here / "revised.Dockerfile", here, f"e2e-handler-{version}:dev", build_args=arguments)
    load_image(image)
    return image.tag


def crashing(stage: Stage) -> str:
    """Build an image whose handler is not there, so that its worker ends before its first report."""
    return revised(stage, "crashing", function="handler:absent")
