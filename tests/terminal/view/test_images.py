"""Pictures as data: four kinds by their own bytes, of a bounded size, and nothing else."""

import struct
import zlib
from base64 import b64encode

import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.terminal.view.blocks import Extent
from acp_bridge.terminal.view.html import article
from acp_bridge.terminal.view.images import picture
from acp_bridge.terminal.view.pieces import Pieces


def png(width: int = 3, height: int = 2) -> bytes:
    """A PNG of one colour; only its header is big."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x33\x66\x99" * width) * height) if width < 2_000 else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xff\xc2\x00\x11\x08\x00\x02\x00\x03\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
)
GIF = b"GIF89a" + struct.pack("<HH", 3, 2) + b"\x00\x00\x00;"
VP8 = b"RIFF\x1e\0\0\0WEBPVP8 \x12\0\0\0\x30\x01\0\x9d\x01\x2a" + struct.pack("<HH", 3, 2)
VP8L = b"RIFF\x1e\0\0\0WEBPVP8L\x12\0\0\0\x2f" + struct.pack("<I", 2 | 1 << 14)
VP8X = b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x02\0\0\x01\0\0"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"


def coded(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize(
    ("kind", "data"),
    [("png", png()), ("jpeg", JPEG), ("gif", GIF), ("webp", VP8), ("webp", VP8L), ("webp", VP8X)],
)
def test_a_picture_is_known_by_its_own_bytes_and_its_size_is_read(kind: str, data: bytes) -> None:
    found = picture(coded(data))
    assert found is not None
    assert (found.mime_type, found.width, found.height) == (f"image/{kind}", 3, 2)
    lines = picture(coded(data)[:8] + "\n" + coded(data)[8:])
    assert lines == found


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            SVG,
            b"GIF89a",
            b"\xff\xd8\xff\xe0\xff\xff",
            b"RIFF",
            b"%PDF-1.7",
            b"\xff\xd8\xff\xd9",
        ),
        *(png(100_000, 3), png(10_000, 10_000), png(0, 3), GIF[:8], VP8X[:27], JPEG[:24]),
        b"\x89PNG\r\n\x1a\n" + SVG,
        png() + b"x" * 3_000_000,
    ],
)
def test_what_is_no_picture_or_unfolds_to_too_much_is_none(data: bytes) -> None:
    assert picture(coded(data)) is None


@pytest.mark.parametrize("data", ["!", "AAA", '"><script>', "\ud800", "é" * 9])
def test_what_is_no_base64_is_no_picture(data: str) -> None:
    assert picture(data) is None


def call(block: Json) -> Json:
    content = [{"type": "content", "content": block}]
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": "t", "content": content}}


def shown(params: Json, extent: Extent = Extent.ASKED) -> str:
    piece = Pieces(page=True).add(params)
    assert piece is not None
    return article(piece, extent)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "mimeType": 'image/svg+xml"><script>', "data": coded(png())},
        {"type": "resource", "resource": {"uri": "file:///a.png", "blob": coded(png())}},
    ],
)
def test_a_tool_s_picture_is_an_image_on_a_page_and_words_in_a_file(block: Json) -> None:
    html = shown(call(block))
    assert f'src="data:image/png;base64,{coded(png())}"' in html
    assert 'alt="Image (PNG, 3 x 2)" width="3" height="2"' in html
    assert "<script" not in html
    assert "<img" not in shown(call(block), Extent.WHOLE)


@pytest.mark.parametrize("data", [coded(SVG), "not base64", None])
def test_what_is_no_picture_stays_words(data: str | None) -> None:
    html = shown(call({"type": "image", "mimeType": "image/png", "data": data}))
    assert "<img" not in html
    assert "[image image/png]" in html


@pytest.mark.parametrize("kind", ["user_message_chunk", "agent_message_chunk"])
def test_a_picture_in_a_message_stands_between_its_texts(kind: str) -> None:
    pieces = Pieces(page=True)
    blocks: list[Json] = [
        {"type": "text", "text": "before"},
        {"type": "image", "mimeType": "image/png", "data": coded(png())},
        {"type": "text", "text": "behind"},
    ]
    found = [
        pieces.add({"update": {"sessionUpdate": kind, "messageId": "m", "content": each}})
        for each in blocks
    ]
    html = [article(each, Extent.ASKED) for each in found if each]
    assert ["before" in html[0], "<img" in html[1], "behind" in html[2]] == [True] * 3
    assert [f'id="p{number}"' in each for number, each in enumerate(html, 1)] == [True] * 3
