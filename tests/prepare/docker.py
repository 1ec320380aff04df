"""Building images with a Docker engine, for the cluster that is kind."""

from __future__ import annotations

from tests.cluster import kind
from tests.cluster.image_key import Recipe
from tests.cluster.progress import step
from tests.cluster.shell import MissingError, run


def build(recipe: Recipe) -> None:
    """Build an image unless the engine has it, with its content key for a label. Raises ClusterError."""
    try:
        kind.find(recipe)
    except MissingError:
        labels = ["--label", f"{kind.KEY_LABEL}={kind.key(recipe)}"]
        arguments = [word for key, value in recipe.arguments.items() for word in ("--build-arg", f"{key}={value}")]
        with step(f"image {recipe.tag}"):
            run(
                [
                    "docker",
                    "build",
                    "--tag",
                    recipe.tag,
                    "--file",
                    recipe.dockerfile,
                    *labels,
                    *arguments,
                    recipe.context,
                ]
            )
