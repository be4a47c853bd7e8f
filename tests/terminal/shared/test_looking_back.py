"""`acp-bridge show --turns` and `--files`: what a session did, turn by turn and in all."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, SessionJournal
from acp_bridge.core.protocol import SESSION_PROMPT
from tests.core.journal.sayings import Params, lines
from tests.core.session.living import DONE, Living, first, living
from tests.features.rules.test_rules import ruled
from tests.terminal.shared.conftest import Said

SESSION = "abcd" + "1" * 28


async def session_in(journal: Journal, folder: Path) -> SessionJournal:
    session = await journal.create(SESSION, cwd=str(folder), agent="codex-acp")
    await journal.touch(SESSION, title="Parser")
    return session


def turn(session: SessionJournal, *updates: Params, ends: dict[str, Any] | None = DONE) -> int:
    """A turn with these updates; `ends`: its answer, None while it runs."""
    number = len(session.prompts()) + 1
    seq = session.accept(f"p{number}", {"prompt": [{"type": "text", "text": "please"}]})
    session.start_turn(seq)
    if updates:
        session.record(seq, lines(*updates))
    if ends is not None:
        session.end_prompt(seq, ends, ends)
    return seq


def card(call: str, **more: Any) -> Params:
    """A call that is told at once, with its end."""
    told = {"sessionUpdate": "tool_call", "toolCallId": call, "title": call, "status": "completed"}
    return {"update": {**told, **more}}


def decided(call: str, decision: str, by: str, **more: Any) -> Params:
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call}
    meta = {"acp_bridge": {"decided": {"decision": decision, "by": by, **more}}}
    return {"update": update, "_meta": meta}


def cells(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.splitlines()[1:]]


async def test_a_living_session_keeps_when_its_turns_began_and_ended(
    tmp_path: Path, said: Said
) -> None:
    agent = first()
    async with living(tmp_path / "home", first=agent, cwd=str(tmp_path)) as here:
        here.prompt()
        agent.answer(await agent.asked(SESSION_PROMPT), {**DONE, "usage": {"totalTokens": 7}})
        await here.answered(1)
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        one, two = turns_of(said, here)
    assert one["began"] < one["ended"] <= two["began"]
    assert one["seconds"] >= 0
    assert (one["turn"], one["end"], one["usage"]) == (1, "done", {"totalTokens": 7})
    assert (two["turn"], two["ended"], two["seconds"]) == (2, None, None)


async def test_a_turn_tells_what_rules_have_decided_in_it(tmp_path: Path, said: Said) -> None:
    async with ruled(tmp_path) as it:
        await it.runs("ls -l")
        await it.runs("rm x")
        (told,) = turns_of(said, it.here)
    assert [(each["decision"], each["by"]) for each in told["decided"]] == [
        ("allow", "rule"),
        ("deny", "rule"),
    ]


def turns_of(said: Said, here: Living) -> list[dict[str, Any]]:
    code, out, err = said("show", here.session.id, "--turns", "--json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


async def test_each_turn_is_a_line_with_its_end_its_tokens_and_who_decided(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    assert said("show", "abcd", "--turns") == (0, "No turns.\n", "")
    usage = {"inputTokens": 12, "outputTokens": 3, "totalTokens": "x"}
    allowed = decided("a", "allow", "client", name="phone\x1b")
    turn(session, allowed, allowed, decided("b", "deny", "rule"), ends={**DONE, "usage": usage})
    turn(session, ends={"error": {"code": -32603, "message": "gone\x1b"}})
    session.accept("waits", {"prompt": []})
    turn(session, ends={"stopReason": "cancelled"})
    turn(session, ends=None)
    found = cells(said("show", "abcd", "--turns")[1])
    assert [each.split()[0] for each in found] == ["1", "2", "4", "5"]
    assert found[0].endswith(
        "done 12 input, 3 output (unknown) 2 allow by client phone\\x1b, deny by rule"
    )
    assert found[1].endswith("error: gone\\x1b")
    assert found[2].endswith("cancelled")
    assert found[3].endswith("interrupted")
    lock = await lease.acquire(journal.lock_path(SESSION), 0)
    assert lock is not None
    assert cells(said("show", "abcd", "--turns")[1])[3].endswith("runs")
    os.close(lock)


async def test_turns_of_an_older_bridge_are_shown_without_times(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    turn(session)
    session._file.db.execute("DELETE FROM settings")
    assert cells(said("show", "abcd", "--turns")[1]) == ["1 done"]
    session._file.db.execute(
        "INSERT INTO settings VALUES ('turnBegan:1', '[1]'), ('turnEnded:1', '{')"
    )
    assert cells(said("show", "abcd", "--turns")[1]) == ["1 done"]


async def test_files_are_listed_as_read_edited_and_run_and_not_what_was_refused(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    assert said("show", "abcd", "--files")[1] == "Nothing was read, edited or run.\n"
    there = {"locations": [{"path": f"{tmp_path}/src/a.py", "line": 3}]}
    diff = {"type": "diff", "path": f"{tmp_path}/b.py", "oldText": "1", "newText": "2"}
    edit: Any = {"kind": "edit", "content": [diff]}
    command: Any = {"kind": "execute", "rawInput": {"command": ["rm", "a b"]}}
    turn(
        session,
        card("r", kind="read", **there),
        card("e", **edit),
        card("c", **command, rawOutput={"exitCode": 2}),
        card("no", kind="edit", locations=[{"path": "/never"}], status="failed"),
    )
    denied = card("d", kind="execute", rawInput={"command": "never"}, status="failed")
    turn(session, card("r2", kind="read", **there), decided("d", "deny", "rule"), denied)
    turn(session, card("open", kind="read", locations=[{"path": "/x"}], status="pending"))
    assert cells(said("show", "abcd", "--files")[1]) == [
        "read 1, 2 src/a.py",
        "edited 1 b.py",
        "run 1 rm 'a b' (exit code 2)",
    ]
    told = [json.loads(line) for line in said("show", "abcd", "--files", "--json")[1].splitlines()]
    assert told[0] == {"sessionId": SESSION, "did": "read", "path": "src/a.py", "turns": [1, 2]}
    assert told[2]["command"] == "rm 'a b'"
    assert told[2]["end"] == "exit code 2"


async def test_what_a_subagent_did_counts_and_its_calls_are_not_taken_for_others(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    mine = card("1", kind="read", locations=[{"path": "/mine"}])
    its = {**card("1", kind="read", locations=[{"path": "/its"}]), "sessionId": "#1"}
    turn(session, mine, its)
    assert cells(said("show", "abcd", "--files")[1]) == ["read 1 /mine", "read 1 /its"]


# --- what was run, what was not, and what nobody can say ------------------------------------------


def called(call: str, status: str = "pending", **more: Any) -> Params:
    """A command as it is told before it runs."""
    raw = {"command": f"do {call}"}
    told = {"sessionUpdate": "tool_call", "toolCallId": call, "title": call, "status": status}
    return {"update": {**told, "kind": "execute", "rawInput": raw, **more}}


def update(call: str, own: dict[str, Any] | None = None, **more: Any) -> Params:
    told: Params = {
        "update": {"sessionUpdate": "tool_call_update", "toolCallId": call, **more},
    }
    return {**told, "_meta": {"acp_bridge": own}} if own else told


def words(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


UNKNOWN = "(not known whether it ran)"
FAILS: Any = {"status": "failed", "content": words("Not run: something came before it.")}
#: what is told of a command `c`, and what is known of it then.
TOLD: dict[str, tuple[list[Params], str]] = {
    "completed": ([update("c", status="completed")], "run"),
    "with an exit code": ([update("c", status="failed", rawOutput={"exitCode": 1})], "run"),
    "allowed, and failed": ([decided("c", "allow", "client"), update("c", **FAILS)], "run"),
    "allowed by a rule": ([decided("c", "allow", "rule"), update("c", **FAILS)], "run"),
    "begun, and failed": ([update("c", status="in_progress"), update("c", **FAILS)], "run"),
    "with an output, and open": (
        [update("c", status="in_progress"), update("c", content=words("one\n"))],
        "run",
    ),
    "denied": ([decided("c", "deny", "client"), update("c", **FAILS)], ""),
    "denied, and said to be done": (
        [decided("c", "deny", "rule"), update("c", status="completed")],
        "",
    ),
    "stopped": ([decided("c", "cancelled", "stop"), update("c", status="failed")], ""),
    "withdrawn": ([decided("c", "cancelled", "withdrawn"), update("c", status="failed")], ""),
    "denied, and allowed later": (
        [decided("c", "deny", "rule"), decided("c", "allow", "client"), update("c", **FAILS)],
        "run",
    ),
    "marked": ([update("c", {"ran": False}, **FAILS)], ""),
    "marked, though allowed": (
        [decided("c", "allow", "client"), update("c", {"ran": False}, **FAILS)],
        "",
    ),
    "failed, and nothing more": ([update("c", **FAILS)], "unknown"),
    "closed by the bridge": ([update("c", status="failed")], "unknown"),
    "end assumed": ([update("c", {"assumed": True}, status="completed")], "unknown"),
    "end assumed, allowed": (
        [decided("c", "allow", "client"), update("c", {"assumed": True}, status="completed")],
        "run",
    ),
    "told before it runs": (
        [update("c", content=words("Makes it.")), update("c", **FAILS)],
        "unknown",
    ),
    "open": ([], ""),
    "allowed, and open": ([decided("c", "allow", "client")], ""),
}


@pytest.mark.parametrize("case", TOLD)
async def test_a_command_is_listed_as_run_only_if_it_ran(
    said: Said, journal: Journal, tmp_path: Path, case: str
) -> None:
    told, known = TOLD[case]
    session = await session_in(journal, tmp_path)
    turn(session, called("c"), *told)
    found = said("show", "abcd", "--files")[1]
    diff = said("show", "abcd", "--diff")[1]
    as_json = [
        json.loads(each) for each in said("show", "abcd", "--files", "--json")[1].splitlines()
    ]
    changes = json.loads(said("show", "abcd", "--diff", "--json")[1])
    if not known:
        assert found == "Nothing was read, edited or run.\n"
        assert "do c" not in diff
        assert as_json == []
    elif known == "run":
        assert [each.split(" (")[0] for each in cells(found)] == ["run 1 do c"]
        assert UNKNOWN not in found + diff
        assert "# Commands that were run, and may have changed more:\n#   do c\n" in diff
    else:
        assert cells(found) == [f"unknown 1 do c {UNKNOWN}"]
        assert "Commands that were run" not in diff
        assert f"#   do c {UNKNOWN}\n" in diff
    assert [each["did"] for each in as_json] == [known] * bool(known)
    assert (changes["commands"], changes.get("unknown", [])) == (
        ["do c"] * (known == "run"),
        ["do c"] * (known == "unknown"),
    )


async def test_a_command_that_ran_once_is_run_also_if_it_is_not_known_of_another_time(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    same: Any = {"rawInput": {"command": "make"}}
    turn(session, called("a", **same), update("a", status="completed"))
    turn(session, called("b", **same), update("b", **FAILS))
    assert cells(said("show", "abcd", "--files")[1]) == ["run 1 make", f"unknown 2 make {UNKNOWN}"]


async def test_the_built_in_agent_says_when_a_call_begins_so_one_that_did_not_was_not_run(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await journal.create(SESSION, cwd=str(tmp_path), agent="built-in")
    await journal.touch(SESSION, title="Parser")
    closed = update("b", status="failed")
    began = [called("c"), update("c", status="in_progress"), update("c", status="failed")]
    turn(session, called("a"), update("a", **FAILS), called("b"), closed, *began)
    assert cells(said("show", "abcd", "--files")[1]) == ["run 1 do c"]


async def test_what_was_asked_and_never_answered_was_not_run(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    turn(session, called("a"), called("b"), update("a", status="failed"), update("b", **FAILS))
    session.set("asking", ["a", 7])
    assert cells(said("show", "abcd", "--files")[1]) == [f"unknown 1 do b {UNKNOWN}"]
    session.set("asking", {"odd": 1})
    assert len(cells(said("show", "abcd", "--files")[1])) == 2


async def test_an_edit_that_was_not_run_changes_nothing(
    said: Said, journal: Journal, tmp_path: Path
) -> None:
    session = await session_in(journal, tmp_path)
    diff = {"type": "diff", "path": f"{tmp_path}/b.py", "oldText": "1", "newText": "2"}
    edit: Any = {"kind": "edit", "content": [diff], "rawInput": {}}
    turn(
        session,
        called("a", **edit),
        update("a", {"ran": False}, status="completed"),
        called("b", **edit),
        update("b", {"assumed": True}, status="completed"),
    )
    session.set("asking", ["b"])
    assert said("show", "abcd", "--files")[1] == "Nothing was read, edited or run.\n"
    assert said("show", "abcd", "--diff")[1] == "# No tool call tells of a change.\n"
