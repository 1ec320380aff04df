"""On which files an image depends: one that is not built again is an old one that is tested."""

from __future__ import annotations

import pytest

from tests.cluster.image_key import copied


def test_a_build_depends_on_what_its_dockerfile_copies() -> None:
    """Flags and other stages are not part of the context."""
    dockerfile = "FROM a AS b\nCOPY --chown=1:1 one two/ /to/\nADD three \\\n  /to\nFROM c\nCOPY --from=b /to /to\n"

    assert copied(dockerfile) == ["one", "two/", "three"]


@pytest.mark.parametrize("copy", ["COPY *.lock /to/", "COPY $WHAT /to/", 'COPY ["one", "/to/"]'])
def test_build_with_unusual_sources_depends_on_its_whole_context(copy: str) -> None:
    """Rather too often built than once too seldom."""
    assert copied(f"FROM a\n{copy}\n") == ["."]
