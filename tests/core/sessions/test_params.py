"""What a client may give with a request about sessions, and what is refused by its name."""

from typing import Any

import pytest

from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.sessions import params
from acp_bridge.core.wire.jsonrpc import RpcError

Json = dict[str, Any]
TEXT: Json = {"type": "text", "text": "hello"}


def refusal(check: Any, given: Json) -> str:
    """Return the sentence with which the parameters are refused."""
    with pytest.raises(RpcError) as caught:
        check(given)
    assert caught.value.code == -32602
    return caught.value.message


@pytest.mark.parametrize("odd", [{}, {"sessionId": None}, {"sessionId": 1}, {"sessionId": ["s"]}])
def test_a_session_is_named_by_a_string(odd: Json) -> None:
    assert refusal(params.session_id, odd).startswith("sessionId: ")
    assert params.session_id({"sessionId": ""}) == ""


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({}, "cwd"),
        ({"cwd": None}, "cwd"),
        ({"cwd": "relative"}, "cwd"),
        ({"cwd": ["/w"]}, "cwd"),
        ({"cwd": "/w", "mcpServers": "s"}, "mcpServers"),
        ({"cwd": "/w", "additionalDirectories": "/a"}, "additionalDirectories"),
        ({"cwd": "/w", "additionalDirectories": ["/a", "b"]}, "additionalDirectories.1"),
        ({"cwd": "/w", "additionalDirectories": [None]}, "additionalDirectories.0"),
    ],
)
def test_a_workspace_has_absolute_paths_and_a_list_of_servers(odd: Json, named: str) -> None:
    assert refusal(params.workspace, odd).startswith(f"{named}: ")


@pytest.mark.parametrize("lone", ["\ud800", "x\udfff"])
def test_no_name_has_half_of_a_surrogate_pair_and_no_folder_a_null_character(lone: str) -> None:
    params.names({"sessionId": "s\0é\U0001f600", "cwd": "/é", "additionalDirectories": ["/a"]})
    params.names({"sessionId": 1, "cwd": None, "additionalDirectories": {"a": lone}, "x": lone})
    refused = "must be Unicode, without half of a surrogate pair"
    assert refusal(params.names, {"sessionId": lone}) == f"sessionId: {refused}"
    assert refusal(params.names, {"cwd": f"/{lone}"}) == f"cwd: {refused}"
    roots = {"cwd": "/a", "additionalDirectories": ["/a", 1, f"/{lone}"]}
    assert refusal(params.names, roots) == f"additionalDirectories.2: {refused}"
    assert refusal(params.names, {"cwd": "/a\0"}).startswith("cwd: no folder has")


def test_a_workspace_is_what_was_given_and_tells_no_list_of_roots_from_an_empty_one() -> None:
    server = {"name": "s"}
    given = {"sessionId": "s", "cwd": "/w", "mcpServers": [server], "_meta": {"x": 1}}
    bare = params.workspace(given)
    assert bare == Workspace("/w", None, (server,), {"_meta": {"x": 1}})
    assert "additionalDirectories" not in bare.params()
    empty = params.workspace({**given, "additionalDirectories": []})
    assert empty.params("0") == {**given, "additionalDirectories": [], "sessionId": "0"}
    assert bare.roots == empty.roots == ()
    rooted = params.workspace({"cwd": "/w", "additionalDirectories": ["/a"], "mcpServers": None})
    assert rooted == Workspace("/w", ("/a",), (), {})


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        (None, "prompt"),
        ([], "prompt"),
        ({"type": "text"}, "prompt"),
        ([TEXT, "hello"], "prompt.1"),
        ([{}], "prompt.0"),
        ([{"type": 1}], "prompt.0"),
        ([{"type": "text"}], "prompt.0.text"),
        ([TEXT, {"type": "text", "text": None}], "prompt.1.text"),
    ],
)
def test_a_prompt_is_a_list_of_blocks_that_have_a_type(odd: object, named: str) -> None:
    assert refusal(params.prompt, {"prompt": odd}).startswith(f"{named}: ")


def test_a_prompt_may_hold_blocks_that_the_bridge_does_not_know() -> None:
    blocks = [TEXT, {"type": "hologram", "text": 5}]
    assert params.prompt({"prompt": blocks}) == blocks


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({"cwd": "relative"}, "cwd"),
        ({"cwd": 1}, "cwd"),
        ({"cursor": 1}, "cursor"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "x:1"}, "cursor"),
    ],
)
def test_a_listing_takes_an_absolute_path_and_a_cursor_of_ours(odd: Json, named: str) -> None:
    assert refusal(params.listing, odd).startswith(f"{named}: ")


def test_a_listing_may_be_asked_for_without_any_parameter() -> None:
    assert params.listing({}) == (None, None)
    assert params.listing({"cwd": None, "cursor": None}) == (None, None)
    assert params.listing({"cwd": "/w", "cursor": "a:5"}) == ("/w", "a:5")


@pytest.mark.parametrize("odd", [None, "1", 1.0, True, -1, 65536])
def test_a_version_is_an_integer_of_sixteen_bits(odd: object) -> None:
    assert refusal(params.version, {"protocolVersion": odd}).startswith("protocolVersion: ")
    assert [params.version({"protocolVersion": n}) for n in (0, 65535)] == [0, 65535]


STDIO: Json = {"name": "s", "command": "x", "args": [], "env": []}
HTTP: Json = {"type": "http", "name": "h", "url": "http://x", "headers": []}
PAIRS = [{"name": "A", "value": "b"}, {"name": "N", "value": "1"}, {"name": "T", "value": "true"}]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, []),
        (None, []),
        ([STDIO, HTTP], [STDIO, HTTP]),
        ({"s": {"command": "x"}, "h": {"url": "http://x"}}, [STDIO, HTTP]),
        ({"name": "s", "command": "x"}, [STDIO]),
        ([{**STDIO, "env": {"A": "b", "N": 1, "T": True, "Z": None}}], [{**STDIO, "env": PAIRS}]),
        (
            [{**STDIO, "env": ["A=b", "odd", {"name": "N", "value": 1}]}],
            [{**STDIO, "env": PAIRS[:2]}],
        ),
        ([{**STDIO, "env": {}, "args": {}}], [STDIO]),
        ([{**STDIO, "args": "--x"}], [{**STDIO, "args": ["--x"]}]),
        ([{**HTTP, "headers": {"A": "b"}}], [{**HTTP, "headers": PAIRS[:1]}]),
        ([{"name": "h", "url": "http://x"}], [HTTP]),
        ([{"name": "h", "url": "http://x", "command": None, "type": None}], [HTTP]),
        ([{**HTTP, "type": "streamable-http"}, {**HTTP, "type": "streamableHttp"}], [HTTP, HTTP]),
        ([{**HTTP, "type": "sse"}, {**HTTP, "type": "acp"}], None),
        ([{**STDIO, "url": "http://x"}, {"name": "s"}, 5], None),
        (5, "refused"),
    ],
)
def test_the_mcp_servers_of_a_client_are_read_in_whatever_form_they_come(
    given: Any, read: Any
) -> None:
    if read == "refused":
        refusal(params.workspace, {"cwd": "/w", "mcpServers": given})
    else:
        found = params.workspace({"cwd": "/w", "mcpServers": given, "additionalDirectories": {}})
        assert [*found.mcp_servers] == (given if read is None else read)
        assert found.roots == ()


def test_the_log_names_what_was_put_into_form_and_no_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("DEBUG"):
        params.workspace({"cwd": "/w", "mcpServers": [{**STDIO, "env": {"KEY": "sk-secret-0123"}}]})
    assert "env" in caplog.text
    assert "secret" not in caplog.text
    assert "KEY" not in caplog.text
