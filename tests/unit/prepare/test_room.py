"""A disk that is too small is said before anything is built on it."""

from pathlib import Path

from tests.prepare.room import BESIDES_GB, EACH_GB, why_too_little

CACHE = Path("/cache/cluster")


def test_too_little_room_names_the_folder_both_numbers_and_the_way_out() -> None:
    reason = why_too_little(19, 9.04, CACHE)

    assert reason is not None
    sizes = "9.0 GB of free disk, and 19 images to build and the cluster take 12.0 GB"
    assert reason.startswith(f"/cache/cluster has {sizes}: free some")
    assert "`rm -r /cache/cluster`" in reason


def test_what_is_built_takes_no_more_room() -> None:
    assert why_too_little(0, BESIDES_GB, CACHE) is None
    assert why_too_little(1, BESIDES_GB, CACHE) is not None
    assert why_too_little(1, BESIDES_GB + EACH_GB, CACHE) is None
