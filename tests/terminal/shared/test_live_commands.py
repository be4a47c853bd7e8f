"""The commands on live sessions, from their arguments to what they print and their exit codes."""

import os
import pty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import origin
from acp_bridge.core.journal import Journal
from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client import by_socket
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal import cli
from acp_bridge.terminal.commands import live as live_commands
from acp_bridge.terminal.shared import live
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to

LIVE, ASLEEP = "abcd" + "1" * 28, "bcde" + "2" * 28
BRIDGE = LiveBridge(7, "host", "/run/7", 1, "codex-acp", "0.1.0")
ABOUT: Json = {"sessionId": LIVE, "state": "idle", "agent": "codex-acp", "title": "Par\x1bser"}

Said = Callable[..., tuple[int, str, str]]


class Bridge:
    """The one bridge that lives: a new connection to it for each time that it is asked."""

    def __init__(self) -> None:
        self.about = dict(ABOUT)
        self.answers: dict[str, Any] = {"_acp_bridge/attach": {}}
        self.connections: list[FakeBridge] = []
        self.reachable = True
        #: what `ask` asks for, beside its id.
        self.call: Json = {}

    def calls(self, method: str) -> list[Any]:
        """The params of all requests of a method."""
        return [c.params for one in self.connections for c in one.calls if c.method == method]

    @asynccontextmanager
    async def connect(
        self, path: str, listener: Listener, log: Path | None = None
    ) -> AsyncIterator[Connection]:
        if not self.reachable:
            raise ConnectionRefusedError(111, "Connection refused")
        listed = {"_acp_bridge/live": {"sessions": [self.about]}}
        fake = FakeBridge(**{**listed, **self.answers})
        self.connections.append(fake)
        async with connection_to(fake, listener) as connection:
            yield connection

    def ask(self, params: Json) -> Json:
        """For `answers`: ask for a permission as soon as somebody attaches."""
        card = {"toolCallId": "t", "title": "rm \x1b x", **self.call}
        options = [
            {"optionId": "y", "name": "Yes", "kind": "allow_once"},
            {"optionId": "n", "name": "No", "kind": "reject_once"},
        ]
        asked = {"sessionId": LIVE, "toolCall": card, "options": options}
        self.connections[-1].ask("session/request_permission", asked)
        return {}

    def accept(self, params: Json) -> None:
        """For `answers`: the prompt is on the disk, and runs."""
        fake = self.connections[-1]
        told = {"sessionId": LIVE, "requestId": fake.calls[-1].id, "promptId": "p"}
        fake.peer.notify("_acp_bridge/accepted", told)
        turn = {"promptId": "p", "mine": True}
        fake.peer.notify("_acp_bridge/state", {"sessionId": LIVE, "turn": turn})
        fake.say(LIVE, "the answer")
        fake.peer.answer(fake.calls[-1].id, {"stopReason": "end_turn"})

    @property
    def chosen(self) -> list[Any]:
        answers: list[Any] = [a for one in self.connections for a in one.answered]
        return [answer.result["outcome"]["optionId"] for answer in answers]


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> Bridge:
    bridge = Bridge()

    async def bridges_of(home: Path) -> list[LiveBridge]:
        return [BRIDGE]

    monkeypatch.setattr(live, "bridges_of", bridges_of)
    monkeypatch.setattr(by_socket, "over_socket", bridge.connect)
    monkeypatch.setattr(live, "GLANCE", 5.0)
    return bridge


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which one session is live and another one sleeps."""

    async def make() -> None:
        journal = Journal(tmp_path / "home")
        for session_id in (LIVE, ASLEEP):
            await journal.create(session_id, cwd="/w", agent="codex-acp")
        await journal.close()

    anyio.run(make)
    return tmp_path / "home"


@pytest.fixture
def said(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """Run a command: its exit code, stdout and stderr."""
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(home))

    def said(*words: str) -> tuple[int, str, str]:
        code = cli.run(words)
        found = capfd.readouterr()
        return code, found.out, found.err

    return said


def test_ps_shows_what_lives_and_what_is_silent(bridge: Bridge, said: Said) -> None:
    code, out, _ = said("ps")
    assert code == 0
    assert out.splitlines()[1].split() == ["abcd1111", "idle", "codex-acp", "Par\\x1bser"]
    assert said("ps", "--json")[1].startswith('{"sessionId":"abcd')
    bridge.reachable = False
    assert "not answering" in said("ps")[1]


@pytest.mark.parametrize(
    "words", [("ps",), ("ps", "--json"), ("cancel", LIVE[:4]), ("send", LIVE[:4], "words")]
)
def test_where_nobody_can_look_nothing_is_said_to_be_not_live(
    home: Path, said: Said, words: tuple[str, ...]
) -> None:
    (home / "run").write_text("no folder")
    code, out, err = said(*words)
    assert (code, out) == (1, "")
    assert f"can't be looked up in {home}/run: Not a directory; `acp-bridge doctor`" in err


def test_cancel_says_if_something_ran(bridge: Bridge, said: Said) -> None:
    bridge.answers["_acp_bridge/cancel"] = {"cancelled": True}
    told = "Cancelled what runs in session abcd1111 (Par\\x1bser).\n"
    assert said("cancel", "abc") == (0, told, "")
    assert bridge.calls("_acp_bridge/cancel") == [{"sessionId": LIVE}]
    bridge.answers["_acp_bridge/cancel"] = {"cancelled": False}
    code, out, err = said("cancel", "abc")
    assert (code, out) == (1, "")
    assert "nothing runs in session abcd1111" in err


def test_close_and_delete_of_a_live_session_go_to_its_bridge(bridge: Bridge, said: Said) -> None:
    bridge.answers |= {"_acp_bridge/close": {}, "session/delete": {}}
    assert said("close", LIVE)[:2] == (0, "Closed session abcd1111 (Par\\x1bser).\n")
    assert said("delete", LIVE, "--yes")[:2] == (0, "Deleted session abcd1111 (Par\\x1bser).\n")
    for method in ("_acp_bridge/close", "session/delete"):
        assert bridge.calls(method) == [{"sessionId": LIVE}]


@pytest.mark.parametrize("command", ["cancel", "close", "approve", "deny"])
def test_a_session_that_sleeps_is_said_to_be_not_live(
    bridge: Bridge, said: Said, command: str
) -> None:
    more = ["--option", "y"] if command == "approve" else []
    code, out, err = said(command, "bcd", *more)
    assert (code, out) == (1, "")
    assert err == f"acp-bridge {command}: session bcde2222 is not live\n"


def test_to_delete_what_sleeps_its_agent_is_needed(bridge: Bridge, said: Said) -> None:
    code, _, err = said("delete", "bcd")
    assert code == 2
    assert "is of the agent 'codex-acp': give its command after --" in err
    assert said("delete", "bcd", "--", "gemini")[0] == 2


@pytest.mark.hazard("Q14.3")
@pytest.mark.parametrize("terminals", ["", "stdin", "stdout"])
def test_without_a_terminal_nothing_is_deleted_unless_yes_was_said(
    bridge: Bridge, said: Said, monkeypatch: pytest.MonkeyPatch, terminals: str
) -> None:
    for name in filter(None, [terminals]):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda: True, raising=False)
    bridge.answers["session/delete"] = {}
    code, out, err = said("delete", LIVE)
    assert (code, out) == (2, "")
    assert err == (
        "acp-bridge delete: nobody can say yes where stdin or stdout is no terminal:"
        " give it --yes\n"
    )
    assert bridge.calls("session/delete") == []
    assert said("delete", LIVE, "--yes")[0] == 0
    assert len(bridge.calls("session/delete")) == 1


def test_what_the_bridge_refuses_is_told(bridge: Bridge, said: Said) -> None:
    refusal = RpcError.received(-32600, "no", {"details": "not \x1b now"})
    bridge.answers["_acp_bridge/close"] = refusal
    assert said("close", "abc") == (1, "", "acp-bridge close: no: not \\x1b now\n")
    bridge.reachable = False
    code, _, err = said("close", "abc")
    assert code == 1
    assert "process 7 is not answering" in err


def test_an_agent_uses_none_of_it(
    bridge: Bridge, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "runs_in_agent", lambda: True)
    for words in (["ps"], ["approve", LIVE, "--option", "y"], ["send", LIVE, "p"], ["close", LIVE]):
        code, _, err = said(*words)
        assert code == 1
        assert "an agent can't do that" in err
    assert bridge.connections == []
    assert said("ps", "--help")[0] == 0


# send


def test_a_prompt_is_sent_to_a_live_session(bridge: Bridge, said: Said) -> None:
    bridge.answers["session/prompt"] = bridge.accept
    assert said("send", "abc", "do") == (0, "In the queue of session abcd1111 (Par\\x1bser).\n", "")
    (params,) = bridge.calls("session/prompt")
    assert params == {"sessionId": LIVE, "prompt": [{"type": "text", "text": "do"}]}
    assert said("send", "abc", "do", "--wait", "--interrupt") == (0, "the answer\n", "")
    assert bridge.calls("session/prompt")[-1]["_meta"]["acp_bridge"] == {"delivery": "interrupt"}


def test_words_for_the_turn_that_runs_are_sent_as_such(bridge: Bridge, said: Said) -> None:
    bridge.answers["session/prompt"] = bridge.accept
    code, out, err = said("send", "abc", "also", "--steer")
    assert (code, err) == (0, "")
    assert out == (
        "Sent to session abcd1111 (Par\\x1bser). The words join the turn that runs, if the agent"
        " can take them;\nelse the prompt is the next to run.\n"
    )
    assert bridge.calls("session/prompt")[-1]["_meta"] == {"acp_bridge": {"delivery": "steer"}}
    assert said("send", "abc", "also", "--steer", "--wait")[:2] == (0, "the answer\n")
    assert said("send", "abc", "also", "--steer", "--interrupt")[0] == 2
    code, out, _ = said("send", "bcd", "later", "--steer")  # there is no turn: a prompt like others
    assert (code, "recorded, and left over" in out) == (0, True)
    assert ": later (left over)" in said("show", "bcd")[1]


def test_a_prompt_to_a_session_that_sleeps_is_said_to_be_held(bridge: Bridge, said: Said) -> None:
    code, out, _ = said("send", "bcd", "later")
    assert code == 0
    assert out.startswith("Session bcde2222 is not live: recorded, and left over. It runs when ")
    assert ": later (left over)" in said("show", "bcd")[1]


@pytest.mark.parametrize("option", ["--wait", "--interrupt"])
def test_what_would_never_run_is_not_recorded(bridge: Bridge, said: Said, option: str) -> None:
    code, _, err = said("send", "bcd", option, "now")
    assert code == 1
    assert "it was not recorded" in err
    assert "now" not in said("show", "bcd")[1]


@pytest.mark.parametrize("words", [["abc"], ["abc", " "], ["abc", "p", "--json"]])
def test_a_prompt_that_can_not_be_sent_is_wrong_usage(
    bridge: Bridge, said: Said, words: list[str]
) -> None:
    assert said("send", *words)[0] == 2
    assert bridge.connections == []


# approve and deny


def test_what_is_asked_is_shown_and_answered(bridge: Bridge, said: Said) -> None:
    bridge.about["asks"] = "rm"
    bridge.answers["_acp_bridge/attach"] = bridge.ask
    code, out, _ = said("approve", "abc", "--option", "y")
    assert code == 0
    assert out.startswith("Session abcd1111 (Par\\x1bser) asks:\n\n**Tool** `rm \\x1b x`")
    assert out.endswith("Approved (Yes): rm \\x1b x (nothing but this title is known).\n")
    assert said("deny", "abc")[1].endswith(
        "Denied (No): rm \\x1b x (nothing but this title is known).\n"
    )
    assert bridge.chosen == ["y", "n"]


def test_nothing_is_answered_where_nothing_is_asked(bridge: Bridge, said: Said) -> None:
    code, _, err = said("approve", "abc", "--option", "y")
    assert code == 1
    assert "nothing is asked in session abcd1111" in err
    assert not bridge.calls("_acp_bridge/attach")


def test_without_a_terminal_an_option_is_needed_to_approve(bridge: Bridge, said: Said) -> None:
    code, _, err = said("approve", "abc")
    assert code == 2
    assert "nobody can say yes where stdin is no terminal" in err


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Puts what a person types on the terminal that is this process's stdin."""
    master, slave = pty.openpty()
    stdin = os.dup(0)

    def typed(text: bytes) -> None:
        os.write(master, text)

    try:
        os.dup2(slave, 0)
        monkeypatch.setattr("sys.stdin", os.fdopen(slave, closefd=False))
        yield typed
    finally:
        os.dup2(stdin, 0)
        for each in (master, slave, stdin):
            os.close(each)


@pytest.mark.parametrize(
    ("typed", "code", "chosen"),
    [(b"yes\n", 0, ["y"]), (b"Y\n", 0, ["y"]), (b"yo\n", 1, []), (b"\x04", 1, [])],
)
def test_a_yes_on_the_terminal_approves_and_anything_else_does_not(
    bridge: Bridge,
    said: Said,
    typing: Callable[[bytes], None],
    typed: bytes,
    code: int,
    chosen: list[str],
) -> None:
    bridge.about["asks"] = "rm"
    bridge.answers["_acp_bridge/attach"] = bridge.ask
    typing(typed)
    found, out, _ = said("approve", "abc")
    assert "This is about" not in out
    assert (found, bridge.chosen) == (code, chosen)
    assert "Allow it? [yes/no]" in out


@pytest.mark.hazard("V9")
def test_what_is_approved_stands_where_the_answer_is_typed_however_long_the_question_is(
    bridge: Bridge, said: Said, typing: Callable[[bytes], None]
) -> None:
    another = "\n" * 40 + "Session dddd (docs) asks:\n\ncommand: ls\n"
    bridge.call = {"title": "ls", "rawInput": {"command": "rm -r /", "note": another}}
    bridge.about["asks"] = "ls"
    bridge.answers["_acp_bridge/attach"] = bridge.ask
    typing(b"no\n")
    _, out, _ = said("approve", "abc")
    before, _ = out.split("Allow it? [yes/no]")
    assert before.splitlines()[-1].startswith("This is about ls: command: rm -r / · ")


def test_the_home_is_an_option_too(bridge: Bridge, said: Said, tmp_path: Path) -> None:
    code, _, err = said("close", "--home", str(tmp_path / "other"), "bcd")
    assert code == 1
    assert "no session has an id that begins with 'bcd'" in err
    assert live_commands.PATIENCE > live.SEARCH


@pytest.mark.hazard("Q14.2")
@pytest.mark.parametrize(("typed", "options"), [(b"y\n", []), (b"no\n", []), (b"", ["--yes"])])
def test_at_a_terminal_a_deletion_is_asked_for_unless_yes_was_said(
    bridge: Bridge,
    said: Said,
    typing: Callable[[bytes], None],
    monkeypatch: pytest.MonkeyPatch,
    typed: bytes,
    options: list[str],
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    bridge.answers["session/delete"] = {}
    typing(typed)
    code, out, err = said("delete", LIVE, *options)
    refused = typed == b"no\n"
    assert (code, "not deleted" in err) == ((1, True) if refused else (0, False))
    assert ("Delete session abcd1111 (Par\\x1bser) for good? [yes/no]" in out) is not bool(options)
    assert len(bridge.calls("session/delete")) == (0 if refused else 1)
