"""The images that models take: their types, their size, and their `data:` URLs.

Invariants
- This is the only list of types and the only limit. A provider that refuses one image refuses every
  later request of the conversation, so no other image may get into it.
"""

from __future__ import annotations

import binascii

#: MIME types that every provider takes
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
#: characters of an image in base64: 5 MB, which every provider takes
IMAGE_LIMIT = 5_000_000
#: bytes of an image that has IMAGE_LIMIT characters of base64
IMAGE_BYTES = IMAGE_LIMIT // 4 * 3
#: from the alphabet of base64 that is for addresses
_TO_USUAL = str.maketrans("-_", "+/")
_SPELLINGS = {
    **dict.fromkeys(("image/jpg", "image/pjpeg", "jpg", "jpeg"), "image/jpeg"),
    **dict.fromkeys(("image/x-png", "image/apng", "png"), "image/png"),
    **{name: f"image/{name}" for name in ("gif", "webp")},
}
#: these limits in words, for the user
IMAGES_TAKEN = "PNG, JPEG, GIF and WebP of up to 5 MB"


def image_url(mime_type: str, data: str) -> str | None:
    """Returns the `data:` URL of an image, or None if providers would refuse it.

    `mime_type`: the sender's; the image's first bytes win. `data`: base64.
    """
    if not data or len(data) > IMAGE_LIMIT:
        return None
    try:
        start = binascii.a2b_base64(data, strict_mode=True)[:12]
    except ValueError:
        return None
    mime_type = image_type(start) or mime_type
    return f"data:{mime_type};base64,{data}" if mime_type in IMAGE_TYPES else None


def mended_image(mime_type: str, data: str) -> tuple[str, str]:
    """Returns the type and the data of an image as they are meant.

    The type is that of the first bytes, where these are known; else the sender's, without its
    parameters and in its usual spelling. The data may come as a `data:` address, on several lines,
    in the alphabet for addresses, or without the end.
    """
    if data[:5].lower() == "data:" and "," in data:
        said, _, data = data[5:].partition(",")
        mime_type = said.partition(";")[0] or mime_type
    data = "".join(data.split()).translate(_TO_USUAL).rstrip("=")
    data += "=" * (-len(data) % 4)
    try:
        start = binascii.a2b_base64(data[:16], strict_mode=True)[:12]
    except ValueError:
        start = b""
    mime_type = mime_type.partition(";")[0].strip().lower()
    mime_type = _SPELLINGS.get(mime_type, mime_type)
    return image_type(start) or mime_type, data


def is_base64(data: str) -> bool:
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return False


def is_image(url: str) -> bool:
    """Returns True if providers take the image of this `data:` URL."""
    mime_type, _, data = url.removeprefix("data:").partition(";base64,")
    return image_url(mime_type, data) == url


def image_type(start: bytes) -> str | None:
    """Returns the MIME type of an image by its first 12 bytes; None if models don't take it."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    return None
