"""Whether the disk has room for the images: a full one ends a build, or a test, with an error that names neither."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import images, paths
from tests.cluster.image_key import Recipe
from tests.cluster.shell import ClusterError

#: Gigabytes per image for its archive and for the layers in buildah (9.1 GB for the 19 images of the catalogue,
#: measured in an empty cache); and for what the cluster unpacks and the tests write.
EACH_GB, BESIDES_GB = 0.5, 2.5


def check(recipes: Sequence[Recipe]) -> None:
    """Raise ClusterError when the disk of the cache has too little room for the images that are not built."""
    missing = [recipe for recipe in recipes if not images.archive_of(recipe).exists()]
    if (reason := why_too_little(len(missing), _free_gb(paths.cluster()), paths.cluster())) is not None:
        raise ClusterError(reason)


def why_too_little(missing: int, free_gb: float, folder: Path) -> str | None:
    """PURE: Return why `free_gb` (10^9 bytes) are too few to build this number of images; None when they suffice."""
    wanted_gb = missing * EACH_GB + BESIDES_GB
    if free_gb >= wanted_gb:
        return None
    return (
        f"{folder} has {free_gb:.1f} GB of free disk, and {missing} images to build and the cluster take "
        f"{wanted_gb:.1f} GB: free some, or set ACTIVITYPOOL_CACHE to a folder on a larger disk. When no cluster runs, "
        f"`rm -r {folder}` frees its share; `make prepare` builds it again."
    )


def _free_gb(folder: Path) -> float:
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(folder).free / 1e9
