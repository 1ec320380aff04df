"""The page on scaling has a picture of each option, and the script that draws them still works."""

import pytest

from tests.scripts.draw_options import PAGE, PICTURES, Picture, draw, insert


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_page_shows_the_option_and_what_it_does(picture: Picture) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.partition(f"<!-- picture: {picture.name} -->")

    assert f"{picture.name}:" in before
    assert f"with {picture.name}" in after.partition("<!-- end -->")[0]


def test_picture_shows_another_size_with_the_option() -> None:
    lines = draw(PICTURES[0]).splitlines()

    assert lines[0].startswith("unfinished tasks")
    assert lines[1].split()[-1] < lines[2].split()[-1], "the reserve adds workers"


def test_page_without_a_place_for_a_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="has 0 places for the picture of idleWorkers"):
        insert("nothing", "idleWorkers", "...")
