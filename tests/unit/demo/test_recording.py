"""A recorded demo is one SVG with a frame for every two seconds of the run."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.demo.demo_state import DemoState
from tests.demo.recording import FRAME_SECONDS, Recorder

SVG = "{http://www.w3.org/2000/svg}"


class Nothing:
    """A screen that shows nothing and counts how often it is asked to."""

    def __init__(self) -> None:
        self.shown = 0

    def show(self, demo_state: DemoState, now: float) -> None:
        """Count."""
        self.shown += 1


def recorded(path: Path, times: list[float]) -> ET.Element:
    """Record one state, whose replicas are its time, at these times; returns the SVG."""
    recorder, demo_state = Recorder(Nothing()), DemoState()
    demo_state.start(0, 0.0)
    demo_state.tell(0.0, "scaled <up> & on")
    for at in times:
        demo_state.saw_deployments([{"spec": {"replicas": int(at)}}], at)
        recorder.show(demo_state, at)
    recorder.write(path)
    return ET.fromstring(path.read_text(encoding="utf-8"))


def frames_of(svg: ET.Element) -> list[str]:
    """Return the texts of each frame, looked up by the names that it uses."""
    texts = {text.get("id"): "".join(text.itertext()) for text in svg.iter(f"{SVG}text")}
    film = next(group for group in svg.iter(f"{SVG}g") if group.get("id") == "film")
    return ["\n".join(texts[use.attrib["href"][1:]] for use in frame) for frame in film]


def test_a_frame_is_kept_every_two_seconds_and_at_the_end(tmp_path: Path) -> None:
    frames = frames_of(recorded(tmp_path / "a.svg", [0.0, FRAME_SECONDS / 2, FRAME_SECONDS, 2.5 * FRAME_SECONDS]))

    assert [re.findall(r"(\d+) of 0\.\.10 replicas", frame) for frame in frames] == [["0"], ["2"], ["5"], ["5"]]
    assert all("scaled <up> & on" in frame for frame in frames)


def test_every_frame_has_its_moment_in_the_animation(tmp_path: Path) -> None:
    svg = recorded(tmp_path / "a.svg", [0.0, 2.0, 4.0])
    moves = re.findall(r"([\d.]+)%\{transform:translateY\((-?\d+)px\)\}", svg.findtext(f"{SVG}style") or "")
    height = int((svg.get("viewBox") or "").split()[3])

    assert [int(offset) for _, offset in moves] == [0, -height, -2 * height, -3 * height, -3 * height]
    assert [float(part) for part, _ in moves] == sorted(float(part) for part, _ in moves)
    assert moves[-1][0] == "100"


def test_texts_that_stay_the_same_are_written_once(tmp_path: Path) -> None:
    svg = recorded(tmp_path / "a.svg", [0.0, 2.0, 4.0])

    texts = ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]
    assert len(texts) == len(set(texts))
    assert len(list(svg.iter(f"{SVG}use"))) > 2 * len(texts)


def test_ninety_seconds_of_news_are_a_small_file(tmp_path: Path) -> None:
    recorder, demo_state = Recorder(Nothing()), DemoState()
    demo_state.start(0, 0.0)
    for second in range(90):
        demo_state.tell(
            float(second), f"{second} -> {second + 1} workers: a sentence as long as the operator's own are"
        )
        recorder.show(demo_state, float(second))
    recorder.write(tmp_path / "a.svg")

    assert (tmp_path / "a.svg").stat().st_size < 150_000


def test_every_scene_is_shown_on_the_screen_below() -> None:
    below = Nothing()
    recorder = Recorder(below)
    for at in (0.0, 0.2, 0.4):
        recorder.show(DemoState(), at)

    assert below.shown == 3


def test_a_recording_without_a_scene_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing was shown"):
        Recorder(Nothing()).write(tmp_path / "a.svg")
