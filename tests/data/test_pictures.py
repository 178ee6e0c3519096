"""Pictures of every kind against what Pillow makes of them step by step, and damaged ones."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from encore.data import pictures
from encore.data.image_set import BrokenImagesError
from encore.data.pictures import BrokenPictureError, Fit, PictureFiles, decode

COLOUR = (200, 30, 90)


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    """Return a smooth picture, so that JPEG changes little."""
    numbers = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(numbers).resize((width, height), Image.Resampling.BICUBIC)


def stored(picture: Image.Image, file_format: str = "PNG", **options: object) -> io.BytesIO:
    data = io.BytesIO()
    picture.save(data, file_format, **options)
    return io.BytesIO(data.getvalue())


def channels_first(picture: Image.Image) -> NDArray[np.uint8]:
    pixels = np.array(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def with_orientation(picture: Image.Image, orientation: int, file_format: str = "JPEG") -> io.BytesIO:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return stored(picture, file_format, exif=exif)


@pytest.mark.parametrize(("width", "height"), [(40, 30), (30, 40), (100, 20), (31, 31), (16, 16)])
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "BMP", "TIFF", "PPM"])
def test_cover_fills_the_frame_and_keeps_the_middle(width: int, height: int, file_format: str) -> None:
    file = stored(noise(width, height), file_format)
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    middle = (left, top, left + side, top + side)
    expected = Image.open(file).resize((16, 16), Image.Resampling.BILINEAR, box=middle)
    assert np.array_equal(decode(file, (3, 16, 16), "cover"), channels_first(expected))


def test_stretch_takes_all_of_it() -> None:
    file = stored(noise(40, 20))
    expected = Image.open(file).resize((16, 24), Image.Resampling.BILINEAR)
    assert np.array_equal(decode(file, (3, 24, 16), "stretch"), channels_first(expected))


def test_exact_takes_its_own_size_only() -> None:
    picture = noise(12, 10)
    assert np.array_equal(decode(stored(picture), (3, 10, 12), "exact"), channels_first(picture))
    with pytest.raises(BrokenPictureError, match="it has 12x10 pixels, and 10x12 are expected"):
        decode(stored(picture), (3, 12, 10), "exact")


@pytest.mark.parametrize("fit", ["cover", "stretch"])
@pytest.mark.parametrize(("width", "height"), [(1200, 900), (900, 1700)])
def test_large_jpeg_is_decoded_smaller_and_looks_the_same(fit: Fit, width: int, height: int) -> None:
    """The decoder makes it smaller first: by another filter, so other pixels, but the same picture."""
    file = stored(noise(width, height), "JPEG", quality=95)
    whole = stored(Image.open(file))
    ours, expected = (decode(each, (3, 64, 64), fit).astype(int) for each in (file, whole))
    assert not np.array_equal(ours, expected), "else it was decoded whole"
    assert np.abs(ours - expected).mean() < 1
    assert np.abs(ours - expected).max() <= 12


def test_picture_on_its_side_is_not_decoded_too_small() -> None:
    """Stored 800x400, it stands 400x800; a quarter of that would be too small for a frame 400 wide."""
    standing = with_orientation(noise(800, 400).convert("L"), 6)
    pixels = decode(standing, (1, 200, 400), "cover")[0]
    upright = Image.open(standing).transpose(Image.Transpose.ROTATE_270)
    expected = np.array(upright.resize((400, 200), Image.Resampling.BILINEAR, box=(0, 300, 400, 500)))
    assert np.array_equal(pixels, expected)


# Where the stored upper left corner is to be seen: rows and columns of the corner of the upright picture.
CORNERS = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1), 8: (-1, 0)}


@pytest.mark.parametrize("orientation", CORNERS)
@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_orientation_is_obeyed(orientation: int, file_format: str) -> None:
    picture = Image.new("RGB", (48, 32), "black")
    picture.paste((255, 255, 255), (0, 0, 16, 16))
    shape = (3, 48, 32) if orientation > 4 else (3, 32, 48)
    pixels = decode(with_orientation(picture, orientation, file_format), shape, "exact")
    row, column = CORNERS[orientation]
    assert pixels[:, row, column].min() > 240
    assert pixels.mean() == pytest.approx(255 * 16 * 16 / (48 * 32), rel=0.05), "nothing else is bright"


@pytest.mark.parametrize("exif", [b"MM\0*\0\0\0\x08\xff\xff\x01\x12", b"XX*\0\0\0\0\x08", b"MM"])
@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_damaged_exif_data_do_no_harm(file_format: str, exif: bytes) -> None:
    good = stored(Image.new("RGB", (8, 8), COLOUR), file_format, exif=b"Exif\0\0" + exif)
    pixels = decode(good, (3, 8, 8), "exact")
    assert np.abs(pixels[:, 4, 4].astype(int) - COLOUR).max() <= 3


def deep(value: int) -> Image.Image:
    return Image.fromarray(np.full((8, 8), value, dtype=np.uint16))


@pytest.mark.parametrize(
    ("picture", "file_format", "expected"),
    [
        (Image.new("RGB", (8, 8), COLOUR), "PNG", COLOUR),
        (Image.new("L", (8, 8), 77), "PNG", (77, 77, 77)),
        (Image.new("L", (8, 8), 77), "JPEG", (77, 77, 77)),
        (Image.new("1", (8, 8), 1), "PNG", (255, 255, 255)),
        (Image.new("CMYK", (8, 8), (0, 255, 0, 0)), "TIFF", (255, 0, 255)),
        (Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG", (0, 255, 255)),
        (Image.new("RGB", (8, 8), COLOUR).quantize(4), "GIF", COLOUR),
        (Image.new("RGBA", (8, 8), (*COLOUR, 255)), "PNG", COLOUR),
        (Image.new("RGBA", (8, 8), (*COLOUR, 0)), "PNG", (255, 255, 255)),
        (Image.new("RGBA", (8, 8), (255, 0, 0, 51)), "PNG", (255, 204, 204)),  # 0.2 red, 0.8 white
        (Image.new("LA", (8, 8), (0, 0)), "PNG", (255, 255, 255)),
        (deep(0x4D_FF), "PNG", (0x4D, 0x4D, 0x4D)),
        (deep(0xFF_00), "TIFF", (255, 255, 255)),
    ],
)
def test_every_mode_becomes_colour(
    picture: Image.Image, file_format: str, expected: tuple[int, int, int]
) -> None:
    pixels = decode(stored(picture, file_format), (3, 8, 8), "exact")
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.reshape(3, -1).T.astype(int) - expected).max() <= 1


def test_transparent_colour_of_a_palette_shows_white() -> None:
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, *COLOUR])
    for transparency in (1, b"\xff\x00"):
        pixels = decode(stored(picture, "PNG", transparency=transparency), (3, 8, 8), "exact")
        assert np.all(pixels == 255)
    assert np.all(decode(stored(picture), (3, 8, 8), "exact")[:, 0, 0] == COLOUR)


def test_colour_becomes_grey() -> None:
    picture = noise(8, 8)
    pixels = decode(stored(picture), (1, 8, 8), "exact")
    red, green, blue = channels_first(picture).astype(float)
    assert np.abs(pixels[0] - (0.299 * red + 0.587 * green + 0.114 * blue)).max() <= 1


def test_ending_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "picture.JPEG").write_bytes(stored(Image.new("RGB", (8, 8), COLOUR)).getvalue())
    pixels = PictureFiles(tmp_path, ["picture.JPEG"], (3, 8, 8), "cover").read(np.array([0]))
    assert tuple(pixels[0, :, 0, 0]) == COLOUR


def huge_png(width: int, height: int) -> bytes:
    """Return a few bytes that begin like a picture of that size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


JPEG = stored(noise(40, 30), "JPEG").getvalue()
DAMAGED = {
    "empty.jpg": (b"", "is not a picture (JPEG, PNG, BMP, GIF, PPM, TIFF, WEBP are read)"),
    "text.jpg": (b"<html>404</html>", "is not a picture"),
    "truncated.jpg": (JPEG[:-200], "cannot be decoded (image file is truncated"),
    "beginning.jpg": (JPEG[:30], "cannot be decoded"),
    "overwritten.png": (stored(noise(40, 30)).getvalue()[:60] + b"\0" * 600, "cannot be decoded"),
    "large.png": (huge_png(9000, 9000), "is too large (9000x9000 pixels)"),
    "larger.png": (huge_png(10_000, 10_000), "is too large (10000x10000 pixels)"),
    "largest.png": (huge_png(60_000, 60_000), "cannot be decoded (Image size (3600000000 pixels)"),
    "postscript.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "is not a picture"),
}


@pytest.fixture
def damaged(tmp_path: Path) -> PictureFiles:
    for name, (data, _) in DAMAGED.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "good.jpg").write_bytes(JPEG)
    (tmp_path / "folder.jpg").mkdir()
    names = [*DAMAGED, "good.jpg", "vanished.jpg", "folder.jpg"]
    return PictureFiles(tmp_path, names, (3, 16, 16), "cover")


def test_damaged_pictures_are_named_with_what_is_wrong(damaged: PictureFiles) -> None:
    with pytest.raises(BrokenImagesError) as caught:
        damaged.read(np.arange(len(damaged)))
    reasons = caught.value.reasons
    good = len(DAMAGED)
    assert sorted(reasons) == [row for row in range(len(damaged)) if row != good]
    for row, (name, (_, reason)) in enumerate(DAMAGED.items()):
        assert reasons[row].startswith(f"{damaged.folder / name} {reason}")
    assert reasons[good + 1] == f"{damaged.folder / 'vanished.jpg'} has vanished"
    assert reasons[good + 2] == f"{damaged.folder / 'folder.jpg'} cannot be read (Is a directory)"
    assert damaged.read(np.array([good])).shape == (1, 3, 16, 16)


def test_nothing_is_printed_about_sizes_and_damaged_exif_data(damaged: PictureFiles, tmp_path: Path) -> None:
    """Even where warnings are shown, and while several threads decode."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0\x12\x01\x03\0\x09\0\0\0\x40\0\0\0"
    (tmp_path / "exif.jpg").write_bytes(stored(noise(40, 30), "JPEG", exif=exif).getvalue())
    program = f"""
import sys, warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from PIL import Image
from encore.data.pictures import BrokenPictureError, decode

def read(name):
    try:
        decode(Path(name), (3, 16, 16), "cover")
    except BrokenPictureError as error:
        assert "too large" in str(error), error

names = [{str(tmp_path / "larger.png")!r}, {str(tmp_path / "exif.jpg")!r}] * 50
with ThreadPoolExecutor(4) as pool:
    list(pool.map(read, names))
if sys.argv[1:]:
    warnings.resetwarnings()
    Image.open({str(tmp_path / "exif.jpg")!r}).getexif()
"""
    command = [sys.executable, "-W", "always", "-c", program]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
    loud = subprocess.run([*command, "loud"], capture_output=True, check=True).stderr
    assert b"Warning" in loud, "else there was nothing to be silent about"


def test_programs_of_other_formats_are_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to an interpreter of that language: such files are not even looked into."""
    monkeypatch.setattr(subprocess, "check_call", lambda *_: pytest.fail("a program was started"))
    data = DAMAGED["postscript.jpg"][0]
    with pytest.raises(BrokenPictureError, match="is not a picture"):
        decode(io.BytesIO(data), (3, 8, 8), "cover")


BYTES: dict[str, Callable[[], bytes]] = {
    file_format: lambda file_format=file_format: stored(noise(20, 15), file_format).getvalue()  # type: ignore[misc]
    for file_format in ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP")
}


@pytest.mark.parametrize("file_format", BYTES)
def test_no_change_of_a_file_does_more_than_break_it(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MOST_PIXELS", 1_000_000)  # of each of which there would be three bytes
    good, numbers, num_broken = BYTES[file_format](), random.Random(0), 0
    for _ in range(150):
        data = bytearray(good)
        for _ in range(numbers.choice([1, 2, 8])):
            data[numbers.randrange(min(len(data), numbers.choice([40, 400])))] = numbers.randrange(256)
        if numbers.random() < 0.3:
            del data[numbers.randrange(len(data)) :]
        try:
            assert decode(io.BytesIO(bytes(data)), (3, 8, 8), "cover").shape == (3, 8, 8)
        except BrokenPictureError:
            num_broken += 1
    assert 0 < num_broken < 150
