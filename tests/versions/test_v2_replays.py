"""What happens in a session while a client of version 2 is shown it comes behind that, in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import SessionJournal
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.versions.v2_editor import CWD, V2Bench, V2Editor, v2_bench


class Gated(Agent):
    """Stops in each turn behind its first word, at a gate of the prompt's own."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, Gate] = {}

    def gate(self, text: str) -> Gate:
        return self.gates.setdefault(text, Gate())

    async def _prompt(self, process: Process, params: Json) -> Json:
        text = params["prompt"][0]["text"]
        process.update(params["sessionId"], f"{text} begins")
        await self.gate(text).passed()
        process.update(params["sessionId"], f"{text} ends")
        return {"stopReason": "end_turn"}


@dataclass
class Shown:
    """A client whose replay goes on when it reads."""

    it: V2Bench
    agent: Gated
    client: V2Editor
    session: str
    _since: int = field(default=0)

    async def begun(self, text: str, by: V2Editor | None = None) -> Any:
        """Send a prompt whose turn has begun when this returns; returns the request's id."""
        asked = (by or self.client).prompt(self.session, text)
        await until(lambda: self.agent.gate(text).reached)
        return asked

    async def asks(self) -> Any:
        """Ask for a replay, which goes on when `reads` is called; returns the request's id."""
        self.client.out.stuck = self.it.it.context.settings.client_limit * 3 // 4
        self._since = len(self.client.messages)
        start = {"replayFrom": {"type": "start"}}
        asked = self.client.send("session/resume", {"sessionId": self.session, **CWD, **start})
        await self.client.handled()
        return asked

    async def reads(self, asked: Any) -> None:
        self.client.out.take_all()
        await self.client.result(asked)

    def told(self) -> list[str]:
        """What it was told behind the mark of the replay's end: words, states and answers."""
        told: list[str] = []
        for message in self.client.messages[self._since :]:
            update = message.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == "replay_complete":
                told.clear()
            elif update.get("sessionUpdate") == "state_update":
                told.append("/".join(filter(None, (update["state"], update.get("stopReason")))))
            elif "content" in update:
                content = update["content"]
                words = content if isinstance(content, list) else [content]
                told += [str(each["text"]) for each in words]
            elif "result" in message:
                told.append(f"answer {message['id']}")
        return told


@asynccontextmanager
async def shown(home: Path) -> AsyncIterator[Shown]:
    agent = Gated()
    agent.script["session/prompt"] = agent._prompt
    async with v2_bench(home, agent) as it:
        session = await it.new()
        client = await it.joined()
        await client.ask("session/resume", {"sessionId": session, **CWD})
        yield Shown(it, agent, client, session)


@pytest.mark.hazard("X3.7")
@pytest.mark.parametrize("whose", ["mine", "another's"])
async def test_a_turn_that_ends_behind_a_replay_has_its_end_behind_its_words(
    tmp_path: Path, whose: str
) -> None:
    async with shown(tmp_path) as here:
        by = here.client if whose == "mine" else here.it.editor
        await here.begun("one", by)
        asked = await here.asks()
        here.agent.gate("one").open()
        await here.begun("two", here.it.editor)
        await here.reads(asked)
        here.agent.gate("two").open()
        await until(lambda: here.told()[-1] == "idle/end_turn")
        first = ["running", f"answer {asked}", "one ends", "idle/end_turn"]
        second = ["two", "running", "two begins", "two ends", "idle/end_turn"]
        assert here.told() == [*first, *second]


@pytest.mark.hazard("X3")
async def test_a_prompt_whose_turn_begins_behind_a_replay_has_its_words_and_its_answer_once(
    tmp_path: Path,
) -> None:
    async with shown(tmp_path) as here:
        await here.begun("one")
        waits = here.client.prompt(here.session, "two")
        asked = await here.asks()
        here.agent.gate("one").open()
        await until(lambda: here.agent.gate("two").reached)
        await here.reads(asked)
        here.agent.gate("two").open()
        await until(lambda: here.told()[-1] == "idle/end_turn")
        first = ["running", f"answer {asked}", "one ends", "idle/end_turn"]
        second = ["two", "running", f"answer {waits}", "two begins", "two ends", "idle/end_turn"]
        assert here.told() == [*first, *second]
        shown_last = here.client.updates(here.session, "user_message_chunk")[-1]
        assert (await here.client.result(waits))["messageId"] == shown_last["messageId"]


@pytest.mark.parametrize("more", [[], ["and more"]])
async def test_the_words_of_a_prompt_that_waits_behind_anothers_turn_are_shown_once_after_a_replay(
    tmp_path: Path, more: list[str]
) -> None:
    async with shown(tmp_path) as here:
        await here.begun("one", here.it.editor)
        blocks = [{"type": "text", "text": text} for text in ["two", *more]]
        params = {"sessionId": here.session, "prompt": blocks}
        waits = here.client.send("session/prompt", params)
        await here.reads(await here.asks())
        here.agent.gate("one").open()
        await until(lambda: here.agent.gate("two").reached)
        answer = await here.client.result(waits)
        assert here.told().count("two") == 1
        words = here.client.updates(here.session, "user_message_chunk", "user_message")
        assert words[-1 - len(more)]["messageId"] == answer["messageId"]
        here.agent.gate("two").open()
        await until(lambda: here.told()[-2:] == ["two ends", "idle/end_turn"])


@pytest.mark.hazard("X3.7")
@pytest.mark.parametrize("whose", ["mine", "another's"])
async def test_a_turn_that_ends_while_three_resumes_wait_has_one_end_behind_the_last_replay(
    tmp_path: Path, whose: str
) -> None:
    async with shown(tmp_path) as here:
        await here.begun("one", here.client if whose == "mine" else here.it.editor)
        first = await here.asks()
        bare = {"sessionId": here.session, **CWD}
        second = here.client.send("session/resume", bare)
        third = here.client.send("session/resume", {**bare, "replayFrom": {"type": "start"}})
        await here.client.handled()
        here.agent.gate("one").open()
        await until(lambda: here.it.editor.states(here.session)[-1:] == ["idle/end_turn"])
        await here.reads(first)
        await here.client.result(second)
        await here.client.result(third)
        await until(lambda: here.told()[-1:] == ["idle/end_turn"])
        assert here.told() == ["running", f"answer {third}", "one ends", "idle/end_turn"]
        ends = [each for each in here.client.states(here.session) if "/" in each]
        assert ends == ["idle/end_turn"]


@pytest.mark.hazard("X3")
async def test_a_prompt_that_is_given_up_when_its_turn_runs_and_is_not_told_yet_ends_cancelled(
    tmp_path: Path,
) -> None:
    async with shown(tmp_path) as here:
        await here.begun("one")
        waits = here.client.prompt(here.session, "two")
        asked = await here.asks()
        here.agent.gate("one").open()
        await until(lambda: here.agent.gate("two").reached)
        here.client.cancel_request(waits)
        await here.client.handled()
        await here.reads(asked)
        here.agent.gate("two").open()
        await until(lambda: here.told()[-1].startswith("idle/"))
        began = ["two", "running", f"answer {waits}"]
        assert here.told()[-5:-1] == [*began, "two begins"]
        assert here.told()[-1] == "idle/cancelled"


@pytest.mark.hazard("X3")
async def test_a_turn_whose_words_wait_for_a_replay_that_a_close_breaks_off_has_its_end_alone(
    tmp_path: Path,
) -> None:
    async with shown(tmp_path) as here:
        await here.begun("one")
        asked = await here.asks()
        here.agent.gate("one").open()
        await until(lambda: here.it.editor.states(here.session)[-1] == "idle/end_turn")
        await until(lambda: here.told() == ["one", "one begins"])  # and the replay waits
        closing = here.client.send("session/close", {"sessionId": here.session})
        assert await here.client.result(closing) == {}
        assert (await here.client.refusal(asked)).code == -32600
        assert here.told() == ["one", "one begins", "idle/end_turn", f"answer {closing}"]


async def test_a_close_is_answered_that_comes_while_a_page_is_read_for_one_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, replay = Gate(), SessionJournal.replay

    async def gated(journal: SessionJournal, **more: Any) -> AsyncIterator[list[Json]]:
        async for each in replay(journal, **more):
            await page.passed()
            yield each

    async with shown(tmp_path) as here:
        here.agent.gate("one").open()
        await here.client.ran(here.session, "one")
        monkeypatch.setattr(SessionJournal, "replay", gated)
        asked = await here.asks()
        await until(lambda: page.reached)
        closing = here.client.send("session/close", {"sessionId": here.session})
        await here.client.handled()
        page.open()
        assert await here.client.result(closing) == {}
        assert (await here.client.refusal(asked)).code == -32600


async def test_the_words_that_a_replay_has_ended_with_are_another_message_when_sent_once_more(
    tmp_path: Path,
) -> None:
    async with shown(tmp_path) as here:
        here.agent.gate("one").open()
        first = await here.client.ran(here.session, "one")
        await here.client.resumed(here.session)
        assert await here.client.ran(here.session, "one") != first
        echoes = here.client.updates(here.session, "user_message")
        assert [each["content"][0]["text"] for each in echoes] == ["one", "one"]
