"""Later versions of the handler's image, good and bad, under tags of their own."""

from tests.cluster import catalogue, find_image, load_image

UNPULLABLE = "registry.invalid/handler:2"


def revised(version: str) -> str:
    """Load a later version of the handler's image, one of `catalogue.HANDLER_VERSIONS`; returns its tag."""
    image = find_image(catalogue.handler_version(version))
    load_image(image)
    return image.tag


def crashing() -> str:
    """Load an image without its handler, so that its worker ends before its first report; return its tag."""
    return revised("crashing")
