"""Content blocks as a model reads them."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.content.blocks import content_of, place, text_of
from agent.content.images import IMAGE_LIMIT

Block = dict[str, Any]

PNG: Block = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
BLOB: Block = {
    "type": "resource",
    "resource": {"uri": "file:///p.png", "mimeType": "image/png", "blob": "BBBB"},
}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def resource(**fields: str) -> Block:
    return {"type": "resource", "resource": fields}


def test_what_has_no_image_is_one_text() -> None:
    link = {"type": "resource_link", "uri": "file:///a/b%20c.py", "name": "b c.py"}
    embedded = resource(uri="file:///b.py", text="B = 1\n")
    assert content_of([text("see"), link, embedded]) == (
        "see\n[b c.py](/a/b c.py)\n/b.py:\n```\nB = 1\n```"
    )
    assert content_of([]) == ""


def test_images_stay_in_their_place_among_the_words() -> None:
    assert content_of([text("this"), text("one"), PNG, text("or"), BLOB]) == [
        {"type": "text", "text": "this\none"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "or"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}},
    ]


def test_an_image_that_the_model_does_not_take_is_a_note() -> None:
    named = {**PNG, "uri": "file:///shot.png"}
    content = content_of([text("see"), PNG, named, BLOB], images=False)
    assert isinstance(content, str)
    assert content.splitlines() == [
        "see",
        "(an image, not shown)",
        "(/shot.png: an image, not shown)",
        "(/p.png: an image, not shown)",
    ]


@pytest.mark.parametrize("kind", ["image/svg+xml", "image/tiff", "text/plain", ""])
def test_a_kind_that_providers_refuse_is_never_given_as_an_image(kind: str) -> None:
    block = {**PNG, "mimeType": kind}
    assert content_of([block]) == "(an image, not shown)"


@pytest.mark.parametrize("data", ["not base64!", "AAA", "AA==AA", "AAAA\n", "ÄÄÄÄ"])
def test_what_is_no_base64_is_not_given(data: str) -> None:
    """A provider refuses it, and with it every later prompt of the session."""
    assert content_of([{**PNG, "data": data}]) == "(an image, not shown)"


def test_an_image_is_given_as_what_it_is_not_as_what_it_is_called() -> None:
    """Anthropic refuses one under the name of another kind."""
    for start, kind in [
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"\xff\xd8\xff\xe0", "jpeg"),
        (b"GIF89a", "gif"),
        (b"RIFF....WEBP", "webp"),
    ]:
        data = base64.b64encode(start + bytes(99)).decode()
        url = f"data:image/{kind};base64,{data}"
        given = content_of([{**PNG, "mimeType": "image/tiff", "data": data}])
        assert given == [{"type": "image_url", "image_url": {"url": url}}]


def test_an_image_that_is_too_large_for_providers_is_named() -> None:
    data = "A" * (IMAGE_LIMIT + 4)
    assert content_of([{**PNG, "data": data}]) == "(an image that is too large, not shown)"


def test_an_empty_image_is_not_given() -> None:
    assert content_of([{**PNG, "data": ""}]) == "(an image, not shown)"


def test_a_binary_resource_is_named() -> None:
    zipped = resource(uri="file:///z.zip", blob="AAAA", mimeType="application/zip")
    assert content_of([zipped]) == "(/z.zip: application/zip, not shown)"
    assert content_of([resource(uri="s3://z", blob="AAAA")]) == "(s3://z: binary, not shown)"


def test_what_is_not_read_is_said() -> None:
    audio = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
    assert content_of([audio]) == "(content that this agent does not read)"


def test_an_embedded_text_can_not_close_its_own_fence() -> None:
    found = content_of([resource(uri="file:///a.md", text="```\ncode\n```\n````\n")])
    assert isinstance(found, str)
    assert found.startswith("/a.md:\n`````\n```\n")
    assert found.endswith("\n````\n`````")


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("file:///a.py#L3-9", "/a.py#L3-9"),
        ("file:///C:/a.py", "C:/a.py"),
        ("file://server/share", "file://server/share"),
        ("https://example.com/a%20b", "https://example.com/a%20b"),
        ("zed:///thread/1", "zed:///thread/1"),
        ("file://[", "file://["),
        ("", ""),
    ],
)
def test_a_file_uri_is_read_as_its_path(uri: str, meant: str) -> None:
    assert place(uri) == meant


values = st.none() | st.integers() | st.text(max_size=9) | st.just("file://[x")
fields = ["uri", "name", "text", "data", "blob", "mimeType"]
inner = st.dictionaries(st.sampled_from(fields), values)
kinds = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "new", None])
odd = st.builds(lambda f, k, r: {**f, "type": k, "resource": r}, inner, kinds, inner | values)


@given(st.lists(odd, max_size=4), st.booleans())
def test_whatever_a_client_sends_becomes_something(blocks: list[Block], images: bool) -> None:
    content = content_of(blocks, images=images)
    assert bool(content) >= bool(text_of(blocks))
    if not images:
        assert content == text_of(blocks)
