"""Resize an image: the everyday form of a handler. Its annotations check the input, its return value is the output.

Input:  {"image": "UDYKNCAyCjI1NQ...", "width": 2}
Output: {"image": "UDYgMiAxIDI1NQ...", "width": 2, "height": 1}

The image is a binary PPM file in base64, so the example needs only Python. The image is a part of the task, so the
example needs no storage: Step Functions takes up to 262,144 bytes of input and of output. A handler for larger images
takes the names of objects in a bucket instead, and an imaging library.
"""

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass

HEADER = re.compile(rb"P6\s+(\d+)\s+(\d+)\s+255\s")
BYTES_PER_PIXEL = 3


@dataclass
class Picture:
    """The input: an image in base64, and the width in pixels to which it is scaled."""

    image: str
    width: int


@dataclass
class Resized:
    """The output: the new image in base64, with its size in pixels."""

    image: str
    width: int
    height: int


class NotAnImageError(ValueError):
    """The input is not a binary PPM image. The state machine can catch this error by its name."""


def handle(picture: Picture) -> Resized:
    """Return the image scaled to `width` pixels. An exception fails the task under its class's name."""
    image, height = resize(b64decode(picture.image), picture.width)
    return Resized(b64encode(image).decode(), picture.width, height)


def resize(image: bytes, width: int) -> tuple[bytes, int]:
    """Return `image` scaled to `width`, and its height. Each pixel is a copy of its nearest neighbour."""
    header = HEADER.match(image)
    if header is None:
        raise NotAnImageError("the input does not start like a binary PPM image (P6, 255 colours)")
    old_width, old_height = int(header[1]), int(header[2])
    height = max(1, old_height * width // old_width)
    columns = [x * old_width // width * BYTES_PER_PIXEL for x in range(width)]
    pixels = bytearray()
    for y in range(height):
        row = header.end() + y * old_height // height * old_width * BYTES_PER_PIXEL
        for column in columns:
            pixels += image[row + column : row + column + BYTES_PER_PIXEL]
    return b"P6 %d %d 255\n" % (width, height) + bytes(pixels), height
