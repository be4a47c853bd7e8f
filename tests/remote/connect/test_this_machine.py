"""What runs elsewhere has nothing of the machine on which an editor runs `connect`."""

from typing import Any

import pytest

from acp_bridge.core.protocol import own_meta
from acp_bridge.remote.connect.machine import Machine
from acp_bridge.remote.connect.way_out import ToEditor, ToServer

pytestmark = pytest.mark.hazard("N2")

WAYS: list[dict[str, Any]] = [
    {"id": "a", "name": "a key"},
    {"id": "b", "name": "a command", "type": "terminal", "args": ["--login"]},
    {"id": "c", "name": "another", "_meta": {"terminal-auth": {"command": "/bin/sh"}}},
]


def rpc(**message: Any) -> Any:
    return {"jsonrpc": "2.0", **message}


def greeted(version: int) -> tuple[Machine, Any, Any]:
    """A machine, the `initialize` that it has sent, and the answer that the editor has got."""
    machine = Machine("a name of 16 and more", "host", lambda: "key")
    machine.line_up()
    able = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "other": 1}
    params = {"protocolVersion": version, "clientCapabilities": able, "capabilities": able}
    sent, *_ = machine.from_editor(rpc(id=0, method="initialize", params=params))
    assert isinstance(sent, ToServer)
    answer = {"protocolVersion": version, "authMethods": WAYS}
    got, *_ = machine.from_server(rpc(id=0, result=answer))
    assert isinstance(got, ToEditor)
    return machine, sent.message["params"], got.message["result"]


@pytest.mark.hazard("N2.23")
@pytest.mark.parametrize(
    "method",
    ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output", "fs/new"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_no_file_is_read_or_written_and_no_command_run_for_what_runs_elsewhere(
    version: int, method: str
) -> None:
    machine, _, _ = greeted(version)
    params = {"sessionId": "s", "path": "/home/me/.bashrc", "content": "x", "command": "sh"}
    (refused,) = machine.from_server(rpc(id=7, method=method, params=params))
    assert isinstance(refused, ToServer)
    assert (refused.message["id"], refused.message["error"]["code"]) == (7, -32601)


@pytest.mark.hazard("N2.23")
def test_the_other_end_is_told_of_neither_files_nor_terminals() -> None:
    _, told, _ = greeted(1)
    able = told["clientCapabilities"]
    assert own_meta(able)["client"]
    assert {name for name in able if name != "_meta"} == {"other"}


@pytest.mark.parametrize("version", [1, 2])
def test_the_editor_is_offered_no_login_by_a_command_of_the_other_end_s(version: int) -> None:
    _, _, answer = greeted(version)
    assert answer["authMethods"] == WAYS[:1]
