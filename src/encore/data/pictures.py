"""Picture files that become uint8 pixels when they are asked for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from encore.data.image_set import BrokenImagesError, Rows

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
ENDINGS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pbm", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
)
DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")  # grey of 16 bits

MOST_PIXELS = 80_000_000  # a small file may unpack to any number

_PILLOW = r"PIL\."
_SILENT = ("ignore", None, Warning, re.compile(_PILLOW), 0)  # as the filter stands among the others

# How a camera was held, by EXIF's number, and what turns its picture upright.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# How a picture of another size is made to fit: `exact`, not at all; `stretch`, whatever becomes of its
# proportions; `cover`, keeping them: the shorter side fills the frame, of the longer one the middle is kept.
Fit = Literal["exact", "stretch", "cover"]


class PictureFiles:
    """Pictures below a folder, decoded when they are read.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Image.new("RGB", (40, 20), (255, 0, 0)).save(folder / "red.png")
    >>> PictureFiles(folder, ["red.png"], (3, 8, 8), "cover").read(np.array([0]))[0, :, 4, 4].tolist()
    [255, 0, 0]
    """

    reads_at_once = False

    def __init__(self, folder: Path, names: Sequence[str], shape: tuple[int, int, int], fit: Fit) -> None:
        self.folder = folder
        self.names = names
        self.shape = shape
        self.fit = fit

    def __len__(self) -> int:
        return len(self.names)

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the pictures in the rows as uint8 [len(rows), C, H, W]."""
        pixels = np.empty((len(rows), *self.shape), dtype=np.uint8)
        reasons = {}
        for number, row in enumerate(rows.tolist()):
            path = self.folder / self.names[row]
            try:
                pixels[number] = decode(path, self.shape, self.fit)
            except BrokenPictureError as error:
                reasons[row] = f"{path} {error}"
        if reasons:
            raise BrokenImagesError(reasons)
        return pixels


class BrokenPictureError(Exception):
    """A picture cannot be read: why, in words that follow its name."""


def decode(file: Path | BinaryIO, shape: tuple[int, int, int], fit: Fit) -> NDArray[np.uint8]:
    """Return a picture as uint8 [C, H, W], turned upright, in grey or colour as the shape says."""
    num_channels, height, width = shape
    _silence_pillow()
    try:
        with Image.open(file, formats=FORMATS) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise BrokenPictureError(f"is too large ({opened.width}x{opened.height} pixels)")
            if fit != "exact":
                side = max(height, width)  # of both, as the picture may lie on its side
                opened.draft(None, (side, side))  # a JPEG need not be decoded larger than that
            picture = _fit(_with_channels(_turn_upright(opened), num_channels), shape, fit)
    except BrokenPictureError:
        raise
    except FileNotFoundError:
        raise BrokenPictureError("has vanished") from None
    except UnidentifiedImageError:
        raise BrokenPictureError(f"is not a picture ({', '.join(FORMATS)} are read)") from None
    except Exception as error:  # decoders raise whatever a damaged file makes them stumble over
        if isinstance(error, OSError) and error.strerror:
            raise BrokenPictureError(f"cannot be read ({error.strerror})") from error
        raise BrokenPictureError(f"cannot be decoded ({error})") from error
    pixels = np.asarray(picture, dtype=np.uint8).reshape(height, width, num_channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _silence_pillow() -> None:
    """Let Pillow say nothing of damaged EXIF data or of sizes: both are seen to here.

    Filters belong to the process, not to a thread: changed around each picture, they would be lost or left
    behind while several threads decode. So this one is added once, and stays.
    """
    if _SILENT not in warnings.filters:
        warnings.filterwarnings("ignore", module=_PILLOW)


def _turn_upright(picture: Image.Image) -> Image.Image:
    picture.load()  # some formats are turned here; and what fails here is more than EXIF data
    try:
        orientation = picture.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # what stands beside the pixels is damaged; they need not be
        return picture
    return picture.transpose(TURNS[orientation]) if orientation in TURNS else picture


def _with_channels(picture: Image.Image, num_channels: int) -> Image.Image:
    """Return a picture in grey or colour; what is transparent shows white."""
    if picture.mode in DEEP_MODES:
        picture = Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        with_alpha = picture.convert("RGBA")
        picture = Image.new("RGB", picture.size, (255, 255, 255))
        picture.paste(with_alpha, mask=with_alpha)
    return picture.convert("L" if num_channels == 1 else "RGB")


def _fit(picture: Image.Image, shape: tuple[int, int, int], fit: Fit) -> Image.Image:
    _, height, width = shape
    if picture.size == (width, height):
        return picture
    if fit == "exact":
        raise ValueError(f"it has {picture.width}x{picture.height} pixels, and {width}x{height} are expected")
    if fit == "stretch":
        return picture.resize((width, height), Image.Resampling.BILINEAR)
    return ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)
