"""What a model sees of an MCP server's tools, and what becomes of their answers."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.content.images import is_image
from agent.mcp_servers import results
from agent.mcp_servers.names import LIMIT, identity, server_parts, tool_names
from agent.mcp_servers.results import tool_result
from agent.mcp_servers.server import McpTool
from agent.tools import Toolbox, ToolContext, ToolError
from tests.agent.mcp_servers.support import call
from tests.agent.support import MemoryClient

SCHEMA = {
    "type": "object",
    "properties": {"model_config": {"$ref": "#/$defs/x"}, "a b": {}},
    "$defs": {"x": {"type": "integer"}},
    "additionalProperties": False,
}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool(definition: dict[str, Any], answer: dict[str, Any] | None = None) -> McpTool:
    """Answers with `answer`, or with what it was called with."""

    async def answering(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return answer or {"content": [text(f"{name} {arguments}")]}

    return McpTool("mcp__files__read", "files", definition, answering)


# names


def test_a_name_says_the_server_and_the_tool() -> None:
    assert tool_names("files", ["read", "write-all"]) == {
        "mcp__files__read": "read",
        "mcp__files__write-all": "write-all",
    }


def test_what_a_name_may_not_hold_is_replaced_and_marked() -> None:
    parts = server_parts(["files", "My Files!", "日本", "a__b", "x" * 30])
    shapes = ["files", r"My_Files_\w{6}", r"server_\w{6}", r"a_b_\w{6}", r"x{17}_\w{6}"]
    assert all(map(re.fullmatch, shapes, parts)), parts
    first, second = tool_names("files", ["a.b", "a_b"])
    assert first == "mcp__files__a_b"
    assert re.fullmatch(r"mcp__files__a_b_\w{6}", second)


def test_servers_of_the_same_name_are_told_apart() -> None:
    first, second, third = server_parts(["files", "files", "files"])
    assert first == "files"
    assert len({first, second, third}) == 3


@given(
    st.lists(st.tuples(st.text(max_size=40), st.lists(st.text(max_size=90), max_size=5))),
)
def test_names_are_always_valid_and_no_two_are_the_same(
    servers: list[tuple[str, list[str]]],
) -> None:
    parts = server_parts([name for name, _ in servers])
    names = [
        (full, tool)
        for part, (_, tools) in zip(parts, servers, strict=True)
        for full, tool in tool_names(part, tools).items()
    ]
    assert all(re.fullmatch(r"mcp__[a-zA-Z0-9_-]+", full) for full, _ in names)
    assert all(len(full) <= LIMIT for full, _ in names)
    assert len({full for full, _ in names}) == len(names)
    assert len(names) == sum(len(set(tools)) for _, tools in servers)


# the tool


@pytest.mark.hazard("R13")
def test_a_server_is_known_by_what_is_started_where_and_not_by_its_secrets() -> None:
    stdio = {"name": "a", "command": "/bin/a", "args": ["x"], "env": [{"name": "T", "value": "1"}]}
    http = {"type": "http", "name": "a", "url": "http://a/", "headers": []}
    here, there = Path("/here"), Path("/there")
    others = [
        identity({**stdio, "command": "/bin/b"}, here),
        identity({**stdio, "args": ["y"]}, here),
        identity({**stdio, "env": []}, here),
        identity(stdio, there),
        identity(http, here),
        identity({**http, "url": "http://b/"}, here),
        identity({**http, "type": "sse"}, here),
    ]
    assert len({identity(stdio, here), *others}) == len(others) + 1
    assert identity({**stdio, "env": [{"name": "T", "value": "2"}]}, here) == identity(stdio, here)
    token = {**http, "headers": [{"name": "Authorization", "value": "Bearer x"}]}
    assert identity(token, there) == identity(http, here)


def test_the_model_is_given_the_schema_as_the_server_gave_it() -> None:
    [spec] = Toolbox([tool({"name": "read", "description": "Reads.", "inputSchema": SCHEMA})]).specs
    assert spec["function"] == {
        "name": "mcp__files__read",
        "description": "Reads.",
        "parameters": SCHEMA,
    }


def test_a_schema_without_properties_is_given_none() -> None:
    schema = tool({"name": "read", "inputSchema": {"type": "object"}}).Args.model_json_schema()
    assert schema == {"type": "object", "properties": {}}


async def test_arguments_reach_the_server_as_they_are(tmp_path: Path) -> None:
    arguments = {"model_config": "no integer", "a b": [None], "more": {"x": 1.5}}
    result = await call(tool({"name": "read", "inputSchema": SCHEMA}), tmp_path, **arguments)
    assert result.text == f"read {arguments}"


async def test_every_tool_is_asked_for_whatever_it_promises_and_by_itself_alone(
    tmp_path: Path,
) -> None:
    harmless = tool({"name": "read", "annotations": {"readOnlyHint": True}})
    assert harmless.access == "execute"
    args = harmless.Args.model_validate({})
    action = await harmless.prepare(args, ToolContext(tmp_path, MemoryClient()))
    assert action.grant.key == ("mcp", "mcp__files__read")
    assert action.grant.name == "`read` of files"
    assert harmless.title(args) == "files: read"
    assert harmless.kind == "other"


# answers


def test_texts_are_joined_and_need_no_content_of_the_card() -> None:
    result = tool_result({"content": [text("one"), text("two")], "structuredContent": {"n": 2}})
    assert (result.text, result.content, result.raw) == ("one\ntwo", None, {"n": 2})


def test_structured_content_alone_is_told_as_json() -> None:
    assert tool_result({"content": [], "structuredContent": {"n": "ü"}}).text == '{"n": "ü"}'


def test_an_answer_without_content_says_so() -> None:
    assert tool_result({"content": []}).text == "The tool returned nothing."


def test_an_error_is_raised_with_the_servers_text_bounded() -> None:
    with pytest.raises(ToolError, match=r"^no such file$"):
        tool_result({"content": [text("no such file")], "isError": True})
    with pytest.raises(ToolError, match=r"cut: 10000 of 20000 characters") as raised:
        tool_result({"content": [text("x" * 20_000)], "isError": True})
    assert len(str(raised.value)) < 10_100
    with pytest.raises(ToolError, match="did not say why"):
        tool_result({"content": [], "isError": True})


def test_a_long_text_is_cut_and_says_so() -> None:
    result = tool_result({"content": [text("x" * 60_000)]})
    assert result.text == "x" * 50_000 + "\n[cut: 50000 of 60000 characters]"


def test_large_structured_content_stays_off_the_card() -> None:
    assert tool_result({"content": [text("x")], "structuredContent": ["x" * 300_000]}).raw is None


def test_an_image_goes_to_the_model_and_onto_the_card() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {}}
    result = tool_result({"content": [text("see:"), image]})
    assert result.text == "see:\n[image, image/png]"
    assert result.images == ("data:image/png;base64,AAAA",)
    assert result.content == (
        {"type": "content", "content": text("see:")},
        {
            "type": "content",
            "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        },
    )


def test_an_image_that_no_model_takes_is_shown_to_the_user_alone() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"}
    result = tool_result({"content": [image]})
    assert result.images == ()
    assert result.text == "[image, image/svg+xml: not readable here]"
    assert result.content == ({"type": "content", "content": image},)


def test_an_image_that_is_too_large_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "IMAGE_LIMIT", 3)
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    result = tool_result({"content": [image]})
    assert result.images == ()
    assert result.text == "[image, image/png: left out, it is too large (4 characters)]"


def test_an_embedded_image_is_an_image() -> None:
    resource = {"uri": "memo://x", "blob": "AAAA", "mimeType": "image/gif"}
    result = tool_result({"content": [{"type": "resource", "resource": resource}]})
    assert result.images == ("data:image/gif;base64,AAAA",)


def test_other_bytes_are_named() -> None:
    resource = {"uri": "memo://x", "blob": "AAAA"}
    result = tool_result({"content": [{"type": "resource", "resource": resource}]})
    assert result.text == "[resource memo://x: binary, 3 bytes]"


def test_content_of_an_unknown_kind_is_told() -> None:
    result = tool_result({"content": [{"type": "hologram"}]})
    assert result.text == "[content of a kind that is not known here]"


# images that are labelled oddly

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(30)).decode()
IN_ADDRESSES = base64.urlsafe_b64encode(b"\xff\xd8\xff\xe0" + b"\xfb\xef\xff" * 8).decode()

LABELS = {
    "PNG as JPEG": ("image/jpeg", PNG, "image/png"),
    "JPEG as PNG": ("image/png", JPEG, "image/jpeg"),
    "image/jpg": ("image/jpg", JPEG, "image/jpeg"),
    "image/jpg of unknown bytes": ("image/jpg", "AAAA", "image/jpeg"),
    "capitals": ("Image/PNG", PNG, "image/png"),
    "parameters": ("image/png; charset=binary", PNG, "image/png"),
    "parameters, of unknown bytes": ("IMAGE/PNG;x=1", "AAAA", "image/png"),
    "lines": ("image/png", "\n".join([PNG[:20], PNG[20:], ""]), "image/png"),
    "a `data:` address": ("image/png", f"data:image/png;base64,{PNG}", "image/png"),
    "a `data:` address of another type": (
        "image/jpeg",
        f"DATA:image/gif;base64,{PNG}",
        "image/png",
    ),
    "the alphabet for addresses": ("image/jpeg", IN_ADDRESSES, "image/jpeg"),
    "no end": ("image/png", PNG.rstrip("="), "image/png"),
    "the type of anything": ("application/octet-stream", PNG, "image/png"),
    "no type": (None, PNG, "image/png"),
    "an ending as type": ("png", PNG, "image/png"),
}


@pytest.mark.parametrize(("mime", "data", "meant"), LABELS.values(), ids=LABELS.keys())
@pytest.mark.parametrize("kind", ["image", "resource"])
def test_of_an_image_the_first_bytes_win_and_its_form_is_mended(
    kind: str, mime: str | None, data: str, meant: str
) -> None:
    if kind == "resource" and mime is None:
        block: dict[str, Any] = {"type": kind, "resource": {"uri": "memo://x", "blob": data}}
    elif kind == "resource":
        resource = {"uri": "memo://x", "blob": data, "mimeType": mime}
        block = {"type": kind, "resource": resource}
    else:
        block = {"type": kind, "data": data, "mimeType": mime}
    result = tool_result({"content": [block]})
    (url,) = result.images
    assert url.startswith(f"data:{meant};base64,")
    assert is_image(url)
    assert result.text == f"[image, {meant}]"
    assert result.content is not None
    shown = result.content[0]["content"]
    assert (shown["type"], shown["mimeType"]) == ("image", meant)
    assert base64.b64decode(shown["data"], validate=True)


def test_what_is_no_base64_is_shown_to_nobody() -> None:
    result = tool_result({"content": [{"type": "image", "data": "é!", "mimeType": "image/png"}]})
    assert (result.images, result.content) == ((), None)
    assert result.text == "[image, image/png: not readable here]"
