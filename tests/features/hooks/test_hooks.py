"""Hooks in a session: real commands, an agent that the test plays, a real journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.history import History
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    SESSION_CANCEL,
    SESSION_LOAD,
    SESSION_PROMPT,
    STEERING,
    own_meta,
    user_chunk,
)
from acp_bridge.core.session.process.memory import transcript
from acp_bridge.features.hooks.definitions import HookEvent
from tests.core.session.journals import failing, recorded, recorded_texts
from tests.core.session.living import CANCELLED, DONE, first
from tests.core.session.memory import ClientEnd
from tests.core.session.played_agent import BUSY
from tests.core.session.waiting import until
from tests.features.hooks.hooked import (
    LEAVES,
    alive,
    asked_of_client,
    asks,
    given,
    hooked,
    waits_at,
)

pytestmark = pytest.mark.process
PROMPT, STOP, PERMISSION = HookEvent.PROMPT, HookEvent.TURN_END, HookEvent.PERMISSION


async def test_a_hook_adds_to_a_prompt_what_the_agent_gets_and_the_client_is_not_shown(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (PROMPT, "cat > in; echo branch: main"), agent=agent) as here:
        asked = here.prompt("mend")
        sent = await agent.asked(SESSION_PROMPT)
        words = [{"type": "text", "text": text} for text in ("mend", "branch: main")]
        assert sent["params"]["prompt"] == words
        agent.answer(sent, DONE)
        assert await here.answered(asked) == DONE
        assert here.texts() == []
    told = given(tmp_path, "in")
    assert told == {
        "session_id": "s",
        "cwd": str(tmp_path / "work"),
        "hook_event_name": "UserPromptSubmit",
        "prompt": "mend",
    }


async def test_the_context_of_a_hook_is_kept_for_the_agents_replay_and_shown_by_none(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (PROMPT, "echo extra"), agent=agent) as here:
        await here.turn(agent)
        kept = await recorded(here.journal)
        words = [user_chunk({"type": "text", "text": text}) for text in ("mend", "extra")]
        assert [params["update"] for params in kept] == words
        assert kept[1]["_meta"] == {"acp_bridge": {"context": True}}
        replayed = len(here.got)
        request = here.request("session/load")
        await here.session.replay.load(request, History.FULL)
        shown = [each for each in here.got[replayed:] if each.get("method") == "session/update"]
        texts = [each["params"]["update"].get("content", {}).get("text") for each in shown]
        assert texts == ["mend"]


@pytest.mark.hazard("Q15")
async def test_the_context_of_words_that_the_agent_did_not_take_into_its_turn_is_kept_once(
    tmp_path: Path,
) -> None:
    agent, steer = first(), {"acp_bridge": {"delivery": "steer"}}
    async with hooked(tmp_path, (PROMPT, "echo extra"), agent=agent, steers=True) as here:
        here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        asked = here.prompt("two", _meta=steer)
        agent.answer(await agent.asked(STEERING), {"outcome": "promptRequired"})
        agent.answer(turn, DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert (await here.answered(asked))["stopReason"] == "end_turn"
        assert await recorded_texts(here.journal) == ["one", "extra", "two", "extra"]


@pytest.mark.parametrize(
    "command",
    ["echo not now >&2; exit 2", """echo '{"decision": "block", "reason": "not now"}'"""],
)
async def test_a_refused_prompt_is_answered_with_the_reason_and_the_agent_never_sees_it(
    tmp_path: Path, command: str
) -> None:
    agent = first()
    async with hooked(tmp_path, (PROMPT, command), agent=agent) as here:
        assert await here.answered(here.prompt()) == {"stopReason": "refusal"}
        assert "not now" in here.texts()[0]
        assert SESSION_PROMPT not in agent.heard
        texts = await recorded_texts(here.journal)
        assert texts[0] == "mend"
        assert "not now" in texts[1]
        assert here.outcomes() == [({"stopReason": "refusal"}, None)]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo trouble >&2; exit 1", "exit code 1: trouble"),
        ("kill -9 $$", "signal SIGKILL"),
        ("echo '{'", "no JSON object"),
        ("""echo '{"decision": 5}'""", "decision"),
    ],
)
async def test_a_hook_that_fails_hinders_no_prompt_and_the_session_says_so(
    tmp_path: Path, command: str, why: str
) -> None:
    agent = first()
    async with hooked(tmp_path, (PROMPT, command), agent=agent) as here:
        await here.turn(agent)
        assert len(here.texts()) == 1
        assert why in here.texts()[0]


@pytest.mark.hazard("Q10")
async def test_a_prompt_is_accepted_before_its_hooks_end_and_a_second_one_too(
    tmp_path: Path,
) -> None:
    agent = first()
    slow = (PROMPT, "touch began; until test -e go; do sleep 0.01; done")
    async with hooked(tmp_path, slow, agent=agent) as here:
        here.prompt("one")
        two = here.prompt("two")
        accepted = "_acp_bridge/accepted"
        await until(lambda: [m["method"] for m in here.got if "method" in m].count(accepted) == 2)
        await waits_at(tmp_path, "began")
        assert here.answers() == {}
        (tmp_path / "work" / "go").touch()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(two) == DONE


@pytest.mark.hazard("C3", "C10", "P1")
@pytest.mark.parametrize("event", [PROMPT, STOP])
async def test_stop_kills_the_tree_of_a_hook_before_cancelled_is_said(
    tmp_path: Path, event: HookEvent
) -> None:
    agent = first()
    async with hooked(tmp_path, (event, LEAVES), (event, "touch second"), agent=agent) as here:
        asked = here.prompt()
        if event is STOP:
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        await waits_at(tmp_path, "began")
        here.session.feed(ev.Cancel())
        assert await here.answered(asked) == CANCELLED
        pid = int((tmp_path / "work" / "pid").read_text())
        assert not alive(pid)
        assert not (tmp_path / "work" / "second").exists()
        assert SESSION_CANCEL not in agent.heard


@pytest.mark.hazard("Q11.1")
async def test_feedback_runs_inside_the_users_prompt_and_is_marked_wherever_it_stands(
    tmp_path: Path,
) -> None:
    agent = first()
    stop = (STOP, "cat > in; test -e done || { touch done; echo mend the tests >&2; exit 2; }")
    async with hooked(tmp_path, stop, agent=agent) as here:
        asked = here.prompt()
        behind = here.prompt("behind")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        feedback = await agent.asked(SESSION_PROMPT)
        (block,) = feedback["params"]["prompt"]
        assert "mend the tests" in block["text"]
        assert "not of the user" in block["text"]
        assert "_meta" not in feedback["params"]
        assert not given(tmp_path, "in")["stop_hook_active"]
        assert here.answers() == {}
        (shown,) = [m["params"] for m in here.got if m.get("method") == "session/update"]
        assert shown["_meta"] == {"acp_bridge": {"feedback": True}}
        assert shown["update"]["sessionUpdate"] == "user_message_chunk"
        agent.answer(feedback, {"stopReason": "max_tokens"})
        assert await here.answered(asked) == {"stopReason": "max_tokens"}
        assert given(tmp_path, "in")["stop_hook_active"]
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(behind) == DONE
        kept = await recorded(here.journal)
        marked = [params for params in kept if "feedback" in own_meta(params)]
        del shown["update"]["messageId"]  # only what is shown names the message
        assert marked == [{key: shown[key] for key in ("update", "_meta")}]
        assert [row.params.get("_meta") for row in here.journal.prompts()] == [
            None,
            None,
            {"acp_bridge": {"feedback": True}},
        ]


@pytest.mark.hazard("Q11", "C3")
async def test_stop_ends_the_agents_work_on_feedback_and_the_prompt_with_it(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (STOP, "echo again >&2; exit 2"), agent=agent) as here:
        asked = here.prompt()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        feedback = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        assert agent.heard[-1] == SESSION_CANCEL
        agent.answer(feedback, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        assert here.outcomes() == [(DONE, DONE), (CANCELLED, CANCELLED)]


@pytest.mark.hazard("Q11")
async def test_an_agent_is_sent_back_five_times_and_then_the_session_says_so(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (STOP, "echo again >&2; exit 2"), agent=agent) as here:
        asked = here.prompt()
        for _ in range(6):
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(asked) == DONE
        assert agent.heard.count(SESSION_PROMPT) == 6
        assert "often enough" in here.texts()[-1]


@pytest.mark.hazard("Q11", "K1")
async def test_feedback_that_the_journal_can_not_take_is_said_and_not_given(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, (STOP, "echo again >&2; exit 2"), agent=agent) as here:
        asked = here.prompt()
        sent = await agent.asked(SESSION_PROMPT)
        with failing(here.journal, "INSERT ON prompts"):
            agent.answer(sent, DONE)
            assert await here.answered(asked) == DONE
        assert "its feedback was not given" in here.texts()[-1]
        assert agent.heard.count(SESSION_PROMPT) == 1


@pytest.mark.parametrize("result", [{"stopReason": "cancelled"}, BUSY])
async def test_a_turn_that_failed_or_that_the_client_ended_has_no_hooks(
    tmp_path: Path, result: Any
) -> None:
    agent = first()
    async with hooked(tmp_path, (STOP, "echo again >&2; exit 2"), agent=agent) as here:
        asked = here.prompt()
        agent.answer(await agent.asked(SESSION_PROMPT), result)
        await here.answered(asked)
        assert agent.heard.count(SESSION_PROMPT) == 1


async def test_a_clients_prompt_can_not_pass_for_a_hooks(tmp_path: Path) -> None:
    agent = first()
    async with hooked(tmp_path, (PROMPT, "exit 2"), agent=agent) as here:
        asked = here.prompt(_meta={"acp_bridge": {"feedback": True}, "theirs": 1})
        assert await here.answered(asked) == {"stopReason": "refusal"}
        (row,) = here.journal.prompts()
        assert row.params["_meta"] == {"acp_bridge": {}, "theirs": 1}


# --- the session, and the user -----------------------------------------------------------------


async def test_the_hooks_of_a_sessions_start_and_end_run_and_the_first_prompt_waits(
    tmp_path: Path,
) -> None:
    agent = first()
    start = (HookEvent.SESSION_START, "cat > start; echo use tabs")
    end = (HookEvent.SESSION_END, "cat > end")
    async with hooked(tmp_path, start, end, agent=agent) as here:
        here.session.features.begin("startup")
        here.prompt()
        sent = await agent.asked(SESSION_PROMPT)
        assert [block["text"] for block in sent["params"]["prompt"]] == ["mend", "use tabs"]
        agent.answer(sent, DONE)
        here.prompt("more")
        sent = await agent.asked(SESSION_PROMPT)
        assert [block["text"] for block in sent["params"]["prompt"]] == ["more"]
        agent.answer(sent, DONE)
    assert given(tmp_path, "start")["source"] == "startup"
    assert given(tmp_path, "end")["reason"] == "close"


@pytest.mark.hazard("P1")
async def test_a_hook_of_the_end_that_hangs_does_not_keep_the_session(tmp_path: Path) -> None:
    agent = first()
    async with hooked(tmp_path, (HookEvent.SESSION_END, LEAVES), agent=agent) as here:
        here.session.features.begin("startup")
    assert not alive(int((tmp_path / "work" / "pid").read_text()))


async def test_hooks_are_told_when_the_user_is_waited_for(tmp_path: Path) -> None:
    agent = first()
    hook = (HookEvent.WAITING, "cat > in; touch told; sleep 60")
    async with hooked(tmp_path, hook, agent=agent) as here:
        await asks(here, agent)
        await waits_at(tmp_path, "told")
        assert len(asked_of_client(here)) == 1
        found = given(tmp_path, "in")
        assert found["notification_type"] == "permission_prompt"
        assert found["message"] == "rm -r build: command: x"
        here.session.feed(ev.Cancel())


@pytest.mark.hazard("K7")
async def test_no_hook_has_a_secret_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "ANTHROPIC_API_KEY": "sk-ant-1234567890",
        "STRIPE_API_KEY": "x",
        "GITHUB_TOKEN": "x",
        "DB_PASSWORD": "x",
        "DATABASE_URL": "postgres://user:hunter22@host/db",
        "openai_api_key": "x",
    }
    kept = {
        "GIT_AUTHOR_EMAIL": "a@b",
        "SSH_AUTH_SOCK": "/run/ssh",
        "LANG": "C.UTF-8",
        "MY_VARIABLE": "1",
    }
    for name, value in {**secrets, **kept}.items():
        monkeypatch.setenv(name, value)
    agent = first()
    async with hooked(tmp_path, (PROMPT, "env > env"), agent=agent) as here:
        await here.turn(agent)
    lines = (tmp_path / "work" / "env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert not secrets.keys() & found.keys()
    assert kept.items() <= found.items()
    assert found["CLAUDE_PROJECT_DIR"] == str(tmp_path / "work")


async def test_what_there_is_to_say_of_hooks_is_said_once_with_the_first_turn(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(tmp_path, agent=agent, notices=("they are off",)) as here:
        assert here.texts() == []
        await here.turn(agent)
        await here.turn(agent)
        assert here.texts() == ["they are off"]


async def test_a_transcript_for_the_agent_does_not_take_a_hooks_words_for_the_users(
    tmp_path: Path,
) -> None:
    agent = first()
    stop = (STOP, "test -e done || { touch done; echo again >&2; exit 2; }")
    async with hooked(tmp_path, (PROMPT, "echo extra"), stop, agent=agent) as here:
        asked = here.prompt()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        await here.answered(asked)
        told = await transcript(here.journal)
        assert "User: mend" in told
        assert "Hook: extra" in told
        assert "Hook: [acp-bridge] Feedback" in told


async def test_the_files_from_which_hooks_are_run_are_named_once_with_the_first_prompt(
    tmp_path: Path,
) -> None:
    agent = first()
    async with hooked(
        tmp_path, (HookEvent.SESSION_END, "true"), agent=agent, files={"/h": "1"}
    ) as here:
        await here.turn(agent)
        (named,) = here.texts()
        assert "/h" in named
        await here.turn(agent)
        assert here.texts() == [named]


async def test_a_client_that_loads_while_hooks_run_at_the_end_of_a_turn_is_told_of_that_turn(
    tmp_path: Path,
) -> None:
    agent, other = first(), ClientEnd()
    async with hooked(tmp_path, (STOP, "touch began; sleep 60"), agent=agent) as here:
        asked = here.prompt("mend")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        await waits_at(tmp_path, "began")
        request = other.asks(SESSION_LOAD, {"sessionId": "s"})
        await here.session.replay.load(request, History.FULL)
        assert "A turn runs in this session" in str(other.sent.take())
        here.session.feed(ev.Cancel())
        assert await here.answered(asked) == CANCELLED
