"""What lines become in a trace, also lines that nobody should write."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.wire.jsonrpc import Decoder, encode, notification
from acp_bridge.trace.events import Direction, both_ways
from acp_bridge.trace.file import TraceFile
from tests.support.trace_reader import read_trace

HEAD = b'{"jsonrpc":"2.0","method":"session/update","params":'
UPDATE = {"sessionId": "s", "update": {"sessionUpdate": "plan", "entries": []}}


def as_read(coming: Direction) -> tuple[Decoder, list[bytes]]:
    """A decoder that tells this direction of what it reads, and the events of that."""
    decoder, events = Decoder(), list[bytes]()
    decoder.heard = lambda lines, messages: events.extend(coming.events(lines, 1.5, messages))
    return decoder, events


def events_of(data: bytes) -> list[bytes]:
    """The events, which are the same if the lines were read already."""
    decoder, events = as_read(both_ways("Agent")[0])
    decoder.feed(data)
    assert events == both_ways("Agent")[0].feed(data, 1.5)
    return events


def of_agent(data: bytes) -> list[Any]:
    return [json.loads(line) for line in events_of(data)]


@pytest.mark.parametrize("spaced", [False, True])
def test_an_update_is_an_event_however_it_is_written(spaced: bool) -> None:
    message = notification("session/update", UPDATE)
    line = json.dumps(message).encode() + b"\n" if spaced else encode(message)
    assert of_agent(line) == [
        {
            "type": "notification",
            "ts": 1.5,
            "protocol": "acp",
            "from": "Agent",
            "to": "Proxy(0)",
            "method": "session/update",
            "params": UPDATE,
        }
    ]


@pytest.mark.parametrize(
    "line",
    [
        HEAD + b'{"a":}}',
        HEAD + b"{}}}",
        HEAD + b'{}}{"type":"request"}',
        HEAD + b'{},"id":7}',
        HEAD + b'{},"method":7}',
        HEAD + b'{},"method":"x"}',
        HEAD + b'{"a":NaN}}',
        HEAD + b'{"a":"\\ud800"}}',
        HEAD + b'{"a":"' + b"\xff" + b'"}}',
        HEAD + b"[" * 5000 + b"]" * 5000 + b"}",
        HEAD + b'{},"type":"request","from":"Client"}',
        HEAD + b"{}} \r",
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","id":[7],"method":"x"}',
        b'{"jsonrpc":"2.0","id":7,"method":{}}',
        b'{"id":1,"method":"' + b"x" * 100 + b'","params":' + b'{"mcpServers":' * 900 + b"0" * 1,
        b"[1]",
        b"\xff\x00",
    ],
)
def test_a_line_that_is_odd_makes_one_whole_event_or_none(line: bytes, tmp_path: Path) -> None:
    good = encode(notification("session/update", UPDATE))
    (tmp_path / "trace").write_bytes(b"".join(events_of(line + b"\n" + good)))
    events = read_trace(tmp_path / "trace").events
    assert 1 <= len(events) <= 2
    assert events[-1]["params"] == UPDATE
    assert {(event["from"], event["to"]) for event in events} == {("Agent", "Proxy(0)")}


@pytest.mark.parametrize(
    "repeated",
    [
        b'"jsonrpc":"2.0"',
        b'"\\u006asonrpc":"2.0"',
        b'"method":"session/update"',
        b'"params":{"sessionId":"t"}',
        b'"\\u0070arams":{"sessionId":"t"}',
    ],
)
def test_a_member_that_an_agent_says_twice_stands_once_in_the_event(repeated: bytes) -> None:
    (event,) = events_of(
        encode(notification("session/update", UPDATE))[:-2] + b"," + repeated + b"}\n"
    )
    members = json.loads(event, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    assert members == ["type", "ts", "protocol", "from", "to", "method", "params"]


@pytest.mark.parametrize("key", [b"mcpServers", b"mcp\\u0053ervers", b"\\u006DcpServers"])
def test_headers_in_an_update_are_left_out_however_their_place_is_written(key: bytes) -> None:
    servers = b'[{"name":"n","headers":[{"name":"a","value":"hidden"}]}]'
    (event,) = events_of(HEAD + b'{"update":{"' + key + b'":' + servers + b"}}}\n")
    assert json.loads(event)["params"] == {"update": {"mcpServers": [{"name": "n"}]}}


def test_a_login_under_the_id_of_another_request_has_no_answer_in_the_trace() -> None:
    coming, going = both_ways("Client")
    login = b'{"jsonrpc":"2.0","id":1,"method":"\\u0061uthenticate","params":{"key":"hidden"}}'
    other = b'{"jsonrpc":"2.0","id":1,"method":"session/list"}'
    events = coming.feed(login + b"\n" + other + b"\n", 1.0)
    events += going.feed(b'{"jsonrpc":"2.0","id":1,"result":{"token":"hidden"}}\n', 1.0)
    assert [json.loads(line)["method"] for line in events] == ["session/list"]


def test_it_makes_no_difference_how_the_bytes_are_cut() -> None:
    data = encode(notification("session/update", UPDATE)) * 3
    coming, _ = both_ways("Agent")
    parts = [coming.feed(data[at : at + 7], 1.5) for at in range(0, len(data), 7)]
    assert [json.loads(line) for part in parts for line in part] == of_agent(data)
    decoder, events = as_read(both_ways("Agent")[0])
    for at in range(0, len(data), 7):
        decoder.feed(data[at : at + 7])
    assert [json.loads(line) for line in events] == of_agent(data)


def test_an_answer_to_nothing_and_a_second_answer_make_no_event() -> None:
    coming, going = both_ways("Agent")
    answer = b'{"jsonrpc":"2.0","id":1,"result":null}\n'
    assert coming.feed(answer, 1.0) == []
    assert len(going.events([b'{"jsonrpc":"2.0","id":1,"method":"session/list"}'], 1.0)) == 1
    assert json.loads(coming.feed(answer, 1.0)[0])["payload"] is None
    assert coming.feed(answer, 1.0) == []


def test_a_full_file_is_set_aside_and_no_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = TraceFile(path, most=100)
    for number in range(10):
        file.write(b"%d" % number * 29 + b"\n")
    file.close()
    former = path.with_name("trace.1")
    assert path.read_bytes() == b"9" * 29 + b"\n"
    assert former.read_bytes() == b"".join(b"%d" % number * 29 + b"\n" for number in (6, 7, 8))
    assert [each.stat().st_mode & 0o777 for each in (path, former)] == [0o600, 0o600]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_there_is_set_aside_and_a_file_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"before\n")
    path.chmod(0o644)
    file = TraceFile(path)
    file.write(b"now\n")
    with pytest.raises(OSError, match="another bridge"):
        TraceFile(path)
    file.write(b"still\n")
    file.close()
    assert path.read_bytes() == b"now\nstill\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("trace.1").read_bytes() == b"before\n"


def test_an_empty_file_of_another_user_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace").touch(mode=0o600)
    theirs = (tmp_path / "trace").stat()
    monkeypatch.setattr(os, "geteuid", lambda: theirs.st_uid + 1)
    trace = TraceFile(tmp_path / "trace")
    trace.write(b"mine\n")
    trace.close()
    assert (tmp_path / "trace").stat().st_ino != theirs.st_ino
    assert (tmp_path / "trace.1").read_bytes() == b""


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        TraceFile(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
