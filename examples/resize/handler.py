"""Resize an image: the everyday form of a handler. What it returns is the task's output; what it raises fails the task.

Input:  {"source": "/data/cat.ppm", "target": "/data/cat-small.ppm", "width": 320}
Output: {"target": "/data/cat-small.ppm", "width": 320, "height": 240}

The format is binary PPM, so that the example needs nothing but Python. A real one would use an imaging library.
"""

import re
from pathlib import Path
from typing import Any

from activity_worker.activity import TaskRequest

HEADER = re.compile(rb"P6\s+(\d+)\s+(\d+)\s+255\s")
BYTES_PER_PIXEL = 3


class NotAnImageError(ValueError):
    """The source is not a binary PPM image. The state machine can catch this by name."""


def handle(request: TaskRequest) -> dict[str, Any]:
    """Write `source`, scaled to `width` pixels, to `target`."""
    job = request.input
    target, pixels, height = resize(Path(job["source"]).read_bytes(), int(job["width"]))
    Path(job["target"]).write_bytes(target + pixels)
    return {"target": job["target"], "width": job["width"], "height": height}


def resize(image: bytes, width: int) -> tuple[bytes, bytes, int]:
    """Return header, pixels and height of `image` scaled to `width`, each pixel taken from its nearest neighbour."""
    header = HEADER.match(image)
    if header is None:
        raise NotAnImageError("the source does not start like a binary PPM image (P6, 255 colours)")
    old_width, old_height = int(header[1]), int(header[2])
    height = max(1, old_height * width // old_width)
    columns = [x * old_width // width * BYTES_PER_PIXEL for x in range(width)]
    pixels = bytearray()
    for y in range(height):
        row = header.end() + y * old_height // height * old_width * BYTES_PER_PIXEL
        for column in columns:
            pixels += image[row + column : row + column + BYTES_PER_PIXEL]
    return b"P6 %d %d 255\n" % (width, height), bytes(pixels), height
