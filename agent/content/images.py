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
