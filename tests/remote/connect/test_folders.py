"""Paths of both machines, at the protocol's positions alone."""

from typing import Any

import pytest

from acp_bridge.remote.connect.folders import Folders

PAIRS = Folders([("/here", "/there"), ("/here/deep", "/other"), ("/a b", "/c d")])


def out(**params: Any) -> Any:
    return PAIRS.outward({"id": 1, "method": "m", "params": params})["params"]


def back(**params: Any) -> Any:
    return PAIRS.inward({"method": "m", "params": params})["params"]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/here", "/there"),
        ("/here/x", "/there/x"),
        ("/here/deep/x", "/other/x"),
        ("/hereafter", "/hereafter"),
        ("/elsewhere", "/elsewhere"),
        ("relative/here", "relative/here"),
    ],
)
def test_the_longest_folder_that_fits_counts_and_a_path_below_none_stays(
    path: str, there: str
) -> None:
    assert out(cwd=path)["cwd"] == there
    assert back(cwd=there)["cwd"] == path


def test_roots_are_mapped_and_mcp_servers_are_not() -> None:
    servers = [{"name": "n", "command": "/here/bin", "args": ["/here"], "env": []}]
    told = out(cwd="/here", additionalDirectories=["/here/x", "/y"], mcpServers=servers)
    assert told["additionalDirectories"] == ["/there/x", "/y"]
    assert told["mcpServers"] == servers


def test_links_in_a_prompt_are_mapped_and_its_texts_are_not() -> None:
    prompt = [
        {"type": "text", "text": "look at /here/x and file:///here/x"},
        {"type": "resource_link", "name": "/here/x", "uri": "file:///here/x#L3"},
        {"type": "resource_link", "name": "b", "uri": "file:///a%20b/x%20y"},
        {"type": "resource_link", "name": "h", "uri": "https://here/here/x"},
        {"type": "resource", "resource": {"uri": "file:///here/x", "text": "/here/x"}},
    ]
    assert out(prompt=prompt)["prompt"] == [
        prompt[0],
        {"type": "resource_link", "name": "/here/x", "uri": "file:///there/x#L3"},
        {"type": "resource_link", "name": "b", "uri": "file:///c%20d/x%20y"},
        prompt[3],
        {"type": "resource", "resource": {"uri": "file:///there/x", "text": "/here/x"}},
    ]


def test_locations_diffs_and_links_of_a_tool_call_are_mapped_back_and_its_input_is_not() -> None:
    call = {
        "sessionUpdate": "tool_call",
        "title": "/there/x",
        "rawInput": {"path": "/there/x"},
        "locations": [{"path": "/there/x", "line": 3}],
        "content": [
            {"type": "diff", "path": "/there/x", "oldText": "/there/x", "newText": ""},
            {"type": "content", "content": {"type": "resource_link", "uri": "file:///there/x"}},
            {"type": "content", "content": {"type": "text", "text": "/there/x"}},
        ],
    }
    told = back(update=call)["update"]
    assert told["locations"] == [{"path": "/here/x", "line": 3}]
    assert told["content"] == [
        {"type": "diff", "path": "/here/x", "oldText": "/there/x", "newText": ""},
        {"type": "content", "content": {"type": "resource_link", "uri": "file:///here/x"}},
        {"type": "content", "content": {"type": "text", "text": "/there/x"}},
    ]
    assert (told["title"], told["rawInput"]) == (call["title"], call["rawInput"])
    assert back(toolCall=call)["toolCall"]["locations"] == [{"path": "/here/x", "line": 3}]


def test_changes_of_version_2_are_mapped_back() -> None:
    diff = {"type": "diff", "changes": [{"path": "/there/x", "oldPath": "/there/y"}]}
    told = back(update={"sessionUpdate": "tool_call_update", "content": [diff]})
    assert told["update"]["content"][0]["changes"] == [{"path": "/here/x", "oldPath": "/here/y"}]


def test_the_folders_of_a_list_are_mapped_back() -> None:
    rows = [{"sessionId": "s", "cwd": "/there/x", "title": "/there"}]
    told = PAIRS.inward({"id": 1, "result": {"sessions": rows}})
    assert told["result"]["sessions"] == [{"sessionId": "s", "cwd": "/here/x", "title": "/there"}]


def test_without_folders_a_message_is_the_same() -> None:
    message = {"id": 1, "method": "m", "params": {"cwd": "/here"}}
    assert Folders([]).outward(message) is message
    assert Folders([]).inward(message) is message


def test_a_whole_machine_below_one_folder_is_mapped() -> None:
    whole = Folders([("/mnt/home", "/")])
    assert whole.outward({"params": {"cwd": "/mnt/home"}})["params"] == {"cwd": "/"}
    assert whole.inward({"params": {"cwd": "/src"}})["params"] == {"cwd": "/mnt/home/src"}


@pytest.mark.parametrize(
    "odd", [None, 1, "text", [1, None], {"content": 3, "locations": {"path": 1}}]
)
def test_odd_shapes_stay_as_they_are(odd: Any) -> None:
    message = {"method": "m", "params": {"update": odd, "cwd": 3, "additionalDirectories": [1]}}
    assert PAIRS.inward(message) == message
