"""Hooks of whole bridges: from the files to the processes, whatever ends the bridge meanwhile."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from acp_bridge.features.hooks import trust
from acp_bridge.features.hooks.config import parse
from acp_bridge.features.hooks.places import PROJECT_FILE, RECORDS
from tests.features.hooks.hooked import alive
from tests.support.processes import all_gone, gone
from tests.support.waiting import until
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, kill_agent, shown, stopped

pytestmark = pytest.mark.process

DONE = {"stopReason": "end_turn"}
#: A hook that leaves its group and its session behind, and runs on.
STAYS = "setsid sh -c 'echo $$ > pid.new; mv pid.new pid; sleep 60' & sleep 60"


def hooks(world: World, **commands: str) -> None:
    """Write the user's own hooks."""
    world.home.mkdir(exist_ok=True)
    (world.home / "hooks.toml").write_text(_toml(commands))


def project_hooks(world: World, **commands: str) -> None:
    """Write the project's hooks, and trust them."""
    file = world.cwd / PROJECT_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(_toml(commands))
    content, folder = file.read_bytes(), Path(os.path.realpath(world.cwd))
    files = trust.hashes(folder, content, parse(content.decode(), project=True))
    trust.write_record(world.home, trust.Record(str(folder), files))


def _toml(commands: dict[str, str]) -> str:
    return "".join(f"[[{event}]]\ncommand = '''{text}'''\n" for event, text in commands.items())


async def file_of(world: World, name: str) -> Path:
    """Return a file that a hook makes, waited for."""
    await until((world.cwd / name).exists)
    return world.cwd / name


@pytest.mark.hazard("Q11.1")
async def test_feedback_of_a_hook_is_answered_inside_the_prompt_and_replayed_as_what_it_is(
    world: World,
) -> None:
    again = "test -e once || { touch once; echo '; say mended' >&2; exit 2; }"
    hooks(world, UserPromptSubmit="echo '; say known'", Stop=again)
    async with world.inside() as client:
        session = client.session_id
        assert await client.prompt("say one") == DONE
        assert "mended" in client.text()
        before = shown(client)
    feedback = [u for u in before if u["sessionUpdate"] == "user_message_chunk"]
    assert len(feedback) == 1
    assert "not of the user" in feedback[0]["content"]["text"]
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        replayed = shown(client)
        assert replayed[0].pop("messageId")
        words = {"sessionUpdate": "user_message_chunk"}
        assert replayed[0] == {**words, "content": {"type": "text", "text": "say one"}}
        assert replayed[1:] == before
        told = [m["params"] for m in client.recording.incoming() if "params" in m]
        marked = [p for p in told if "feedback" in p.get("_meta", {}).get("acp_bridge", {})]
        assert [each["update"] for each in marked] == feedback
    rows = await world.journal(session)
    assert [row.outcome for row in rows] == [DONE, DONE]


@pytest.mark.hazard("P1", "Q6", "R12")
@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGKILL"])
async def test_a_bridge_that_ends_in_a_prompts_hook_leaves_no_process_and_the_prompt_is_left_over(
    world: World, how: str
) -> None:
    hooks(world, UserPromptSubmit=f"test -e go || {{ {STAYS}; }}", SessionEnd="sleep 60")
    ends = -signal.SIGKILL if how == "SIGKILL" else 0
    async with world.bridge(capabilities=TELL_ACCEPTED, exits=ends) as client:
        session = client.session_id
        await accepted(client, client.send_prompt("say one"))
        pid = int((await file_of(world, "pid")).read_text())
        if how == "EOF":
            client.close_stdin()
        else:
            client.terminate(signal.Signals[how])
        assert await client.wait(within=3) == ends
    await gone(pid)
    await all_gone(world.mark)
    assert world.log.prompts() == []
    (world.cwd / "go").touch()
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session, world.cwd)
        assert loaded["_meta"]["acp_bridge"]["held"] == [[{"type": "text", "text": "say one"}]]
        assert await client.prompt("/queue run") == DONE
    assert world.log.prompts() == ["say one"]


@pytest.mark.hazard("P1", "C13.2", "Q5.2")
async def test_a_turn_that_had_ended_when_the_bridge_was_killed_in_its_hook_is_done(
    world: World,
) -> None:
    hooks(world, Stop=STAYS)
    async with world.bridge(exits=-signal.SIGKILL) as client:
        session = client.session_id
        client.send_prompt("say one")
        pid = int((await file_of(world, "pid")).read_text())
        client.kill()
        await client.wait()
    await gone(pid)
    (world.home / "hooks.toml").unlink()
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session, world.cwd)
        assert "held" not in loaded["_meta"]["acp_bridge"]
        assert "Interrupted" not in client.text()
    (row,) = await world.journal(session)
    assert (row.outcome, row.agent_outcome) == (DONE, DONE)


@pytest.mark.hazard("C3", "C10", "C23.1", "P1")
async def test_stop_in_a_hook_is_cancelled_when_the_hook_is_dead_and_then_it_is_quiet(
    world: World,
) -> None:
    hooks(world, Stop=STAYS)
    async with world.inside() as client:
        prompt = client.send_prompt("say one")
        pid = int((await file_of(world, "pid")).read_text())
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        assert not alive(pid)
        seen = client.mark()
        assert client.updates(since=seen) == []


@pytest.mark.hazard("Q1", "R4")
async def test_a_session_can_be_loaded_while_a_hook_runs_and_the_agent_restarted(
    world: World,
) -> None:
    hooks(world, UserPromptSubmit="touch began; until test -e go; do sleep 0.01; done")
    async with world.inside() as client:
        session = client.session_id
        prompt = client.send_prompt("say one")
        await file_of(world, "began")
        await kill_agent(world, client)
        await client.load_session(session, world.cwd)
        (world.cwd / "go").touch()
        assert await stopped(client, prompt) == "end_turn"
    assert world.log.prompts() == ["say one"]


@pytest.mark.hazard("C18")
async def test_the_hook_of_a_trusted_project_decides_until_the_agent_has_changed_it(
    world: World,
) -> None:
    allow = json.dumps({"permissionDecision": "allow"})
    (world.cwd / "allow.sh").write_text(f"echo '{allow}'")
    project_hooks(world, PermissionRequest="sh allow.sh")
    world.repeats = True
    async with world.inside() as client:
        assert await client.prompt("permission") == DONE
        assert "allow" in client.text()
        (world.cwd / "allow.sh").write_text(f"# changed\necho '{allow}'")
        for _ in range(2):
            seen = client.mark()
            prompt = client.send_prompt("permission")
            request = await client.until_request("session/request_permission")
            rejected = {"outcome": {"outcome": "selected", "optionId": "reject"}}
            client.answer(request["id"], rejected)
            await stopped(client, prompt)
        assert client.text().count("`allow.sh` changed") == 1
        assert client.text(since=seen)


async def test_a_projects_hooks_do_nothing_before_they_are_trusted(world: World) -> None:
    project_hooks(world, UserPromptSubmit="touch ran")
    for record in (world.home / RECORDS).iterdir():
        record.unlink()
    async with world.inside() as client:
        assert await client.prompt("say one") == DONE
        assert "acp-bridge trust" in client.text()
    assert not (world.cwd / "ran").exists()


async def test_a_broken_file_of_hooks_is_named_with_its_line_and_the_session_goes_on(
    world: World,
) -> None:
    hooks(world)
    (world.home / "hooks.toml").write_text("\n[[Stop]\n")
    async with world.inside() as client:
        assert await client.prompt("say one") == DONE
        assert "hooks.toml`: line 2" in client.text()
        assert await client.prompt("say two") == DONE
        assert client.text().count("hooks.toml`: line 2") == 1


async def test_a_session_starts_and_ends_with_its_hooks(world: World) -> None:
    kept = "cat >> said"
    hooks(world, SessionStart=kept, SessionEnd=kept)
    async with world.inside() as client:
        session = client.session_id
        await client.prompt("say one")
        await client.request("session/close", {"sessionId": session})
        await client.load_session(session, world.cwd)
        await client.prompt("say two")  # it waits for the hooks of the start
    said = [json.loads(line) for line in (world.cwd / "said").read_text().splitlines()]
    assert [(each["hook_event_name"], each.get("source", each.get("reason"))) for each in said] == [
        ("SessionStart", "startup"),
        ("SessionEnd", "close"),
        ("SessionStart", "resume"),
        ("SessionEnd", "shutdown"),
    ]
    assert {each["session_id"] for each in said} == {session}


@pytest.mark.hazard("C18.9")
async def test_a_file_of_hooks_that_is_new_to_a_session_or_has_changed_is_named_in_it(
    world: World,
) -> None:
    """An agent can write the file, and so have a hook of its own answer what it asks."""

    async def named(session: str | None = None) -> list[str]:
        async with world.inside(session=session is None) as client:
            if session:
                await client.load_session(session, world.cwd)
            else:
                sessions.append(client.session_id)
            since = client.mark()
            await client.prompt("say one")
            await client.prompt("say one")
            texts = client.texts(since=since)
        return [text.strip() for text in texts if "hooks.toml" in text]

    world.repeats = True
    sessions: list[str] = []
    assert await named() == []
    hooks(world, PermissionRequest="echo yes")
    (first,) = await named(sessions[0])
    assert "PermissionRequest: `echo yes`" in first
    assert await named() == [first]
    assert await named(sessions[0]) == []
    hooks(world, PermissionRequest="echo yes", Stop="true")
    (changed,) = await named(sessions[0])
    assert "have changed" in changed
    assert "Stop: `true`" in changed
    project_hooks(world, Stop="echo mine")
    (trusted,) = await named(sessions[0])
    assert "`.acp_bridge/hooks.toml`" in trusted
    assert "Stop: `echo mine`" in trusted
    (world.home / "hooks.toml").unlink()
    (gone_,) = await named(sessions[0])
    assert "are gone" in gone_
