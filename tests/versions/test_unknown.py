"""What the bridge doesn't know passes where the other end can take it, in each pairing of versions.

One of each is invented here: methods, notifications, capabilities, parameters, `_meta`, and kinds.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from acp_bridge.versions import greeting_to_v2
from tests.core.sessions.agent import ABLE, Agent, Json, Process, until
from tests.core.sessions.bench import HELLO, Bench, Served, bench
from tests.core.sessions.world import SETUP
from tests.support.v2_schema import HELLO as V2_HELLO
from tests.versions.v2_editor import V2Editor

pytestmark = pytest.mark.hazard("T3")

PAIRINGS = [(1, 1), (1, 2), (2, 1), (2, 2)]
ABILITY: Json = {"goals": {"deep": True}}
INFO: Json = {"name": "agent", "version": "1"}
TEXT: Json = {"type": "text", "text": "after"}
BLOCK: Json = {"type": "hologram", "data": "x", "_meta": {"k": 1}}
UPDATE: Json = {"sessionUpdate": "goal_update", "goal": {"a": [1]}, "_meta": {"k": 1}}
CHUNK: Json = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": BLOCK}
ITEM: Json = {"type": "chart", "points": [1]}


def option(version: int, name: str, kind: str) -> Json:
    """Return a config option of a version."""
    named = "configId" if version == 2 else "id"
    value: Json = {"value": "a", "name": "A"}
    return {named: name, "name": name, "type": kind, "currentValue": "a", "options": [value]}


class Odd(Agent):
    """An agent of either version that invents something."""

    def __init__(self, version: int) -> None:
        super().__init__(able={**ABLE, "trips": {}})
        self.version = version
        #: what it shows in a turn, and how it ends that.
        self.shown: list[Json] = []
        self.reason = "end_turn"
        known = self.script["initialize"]
        if version == 2:
            can: Json = {"session": {"delete": {}, "trips": {}}}
            known = {"protocolVersion": 2, "info": INFO, "capabilities": can}
        place = "capabilities" if version == 2 else "agentCapabilities"
        known[place] |= {**ABILITY, "_meta": {"k": 1}}
        self.script["initialize"] = {**known, "motto": "x", "_meta": {"k": 2}}
        self.script["session/prompt"] = self._odd_prompt
        self.script["session/new"] = self._odd_new
        for method in ("_own/do", "goal/do", "session/goal"):
            self.script[method] = {"done": method}

    async def _odd_new(self, process: Process, params: Json) -> Json:
        made = await self._new(process, params)
        options = [option(self.version, "known", "select"), option(self.version, "odd", "dial")]
        return {**made, "configOptions": options, "mood": "x", "_meta": {"k": 1}}

    async def _odd_prompt(self, process: Process, params: Json) -> Json:
        session_id = params["sessionId"]
        words = {"sessionUpdate": "user_message", "messageId": "u", "content": params["prompt"]}
        if self.version == 2:
            process.shows(session_id, words)
        for update in [*self.shown, {**CHUNK, "messageId": "n", "content": TEXT}]:
            process.shows(session_id, update)
        if self.version == 1:
            return {"stopReason": self.reason, "_meta": {"k": 1}}
        state = {"sessionUpdate": "state_update", "state": "idle", "stopReason": self.reason}
        process.shows(session_id, state)
        return {"messageId": "u"}


class Speaker:
    """A client of either version in the one session."""

    def __init__(self, version: int, client: Served) -> None:
        self.version, self.client = version, client
        self.session = ""
        self.hello: Json = {}
        self.opened: Json = {}

    async def greets(self, **capabilities: object) -> None:
        able = {**capabilities, "_meta": {"k": 1}}
        told: Json = {**HELLO, "clientCapabilities": able}
        if self.version == 2:
            told = {**V2_HELLO, "capabilities": able}
        self.hello = await self.client.ask("initialize", {**told, "creed": 1, "_meta": {"k": 2}})

    async def opens(self) -> None:
        given = {"cwd": SETUP["cwd"], "mcpServers": [], "color": "red", "_meta": {"k": 1}}
        self.opened = await self.client.ask("session/new", given)
        self.session = self.opened["sessionId"]

    async def loads(self, session_id: str) -> None:
        """Come to the session with a replay, of which nothing is kept that came before."""
        self.session, params = session_id, {**SETUP, "sessionId": session_id}
        self.client.way.messages.clear()
        if self.version == 1:
            self.opened = await self.client.ask("session/load", params)
        else:
            params["replayFrom"] = {"type": "start"}
            self.opened = await self.client.ask("session/resume", params)

    async def prompts(self, text: str = "go") -> Json:
        """Send a prompt; returns how its turn ended."""
        block: Json = {"type": "text", "text": text}
        given: Json = {"sessionId": self.session, "prompt": [block, BLOCK], "color": "red"}
        answer: Json = await self.client.ask("session/prompt", {**given, "_meta": {"k": 1}})
        if self.version == 1:
            return answer
        await until(lambda: any("stopReason" in each for each in self.updates()))
        return [each for each in self.updates() if "stopReason" in each][-1]

    def updates(self) -> list[Json]:
        return [each["params"]["update"] for each in self.client.asked("session/update")]

    def shown(self, kind: str) -> list[Json]:
        return [each for each in self.updates() if each["sessionUpdate"] == kind]

    def blocks(self) -> list[Json]:
        """Return the content of the agent's messages."""
        return [each["content"] for each in self.shown("agent_message_chunk")]


class Pair:
    """A bridge between a client and an agent of some version."""

    def __init__(self, it: Bench, first: Speaker, agent: Odd) -> None:
        self.it, self.first, self.agent = it, first, agent

    async def another(self, version: int, **capabilities: object) -> Speaker:
        """Let another client join that has the session."""
        client = Served() if version == 1 else V2Editor(judged=False)
        self.it.context.tasks.start_soon(self.it.bridge.join, client.read, client.way)
        speaker = Speaker(version, client)
        await speaker.greets(**capabilities)
        await speaker.loads(self.first.session)
        return speaker

    @property
    def process(self) -> Process:
        return self.agent.living[-1]

    def at_agent(self) -> str | None:
        """Return the id of the session at the agent."""
        return self.process.agent_session_id


@asynccontextmanager
async def pair(home: Path, client: int, agent: int, **capabilities: object) -> AsyncIterator[Pair]:
    """A bridge with a session; `capabilities`: those that its first client declares."""
    editor = Served() if client == 1 else V2Editor(judged=False)
    odd = Odd(agent)
    async with bench(home, odd, initialized=False, editor=editor) as it:
        await (first := Speaker(client, editor)).greets(**capabilities)
        await first.opens()
        yield Pair(it, first, odd)


def every(test: object) -> object:
    return pytest.mark.parametrize(("client", "agent"), PAIRINGS)(test)


@pytest.mark.parametrize("method", ["_own/do", "goal/do", "session/goal"])
@every
async def test_an_unknown_method_of_a_client_reaches_the_agent_and_its_answer_comes_back(
    tmp_path: Path, client: int, agent: int, method: str
) -> None:
    async with pair(tmp_path, client, agent) as it:
        ask, given = it.first.client.ask, {"a": [1], "_meta": {"k": 1}}
        assert await ask(method, given) == {"done": method}
        named = {**given, "sessionId": it.first.session}
        assert await ask(method, named) == {"done": method}
        assert it.agent.params(method) == [given, {**given, "sessionId": it.at_agent()}]


@pytest.mark.parametrize("method", ["_own/do", "goal/do", "session/goal"])
@every
async def test_an_unknown_method_of_an_agent_reaches_the_client_and_its_answer_comes_back(
    tmp_path: Path, client: int, agent: int, method: str
) -> None:
    async with pair(tmp_path, client, agent) as it:
        editor, given = it.first.client, {"a": [1], "_meta": {"k": 1}}
        named = {**given, "sessionId": it.at_agent()}
        for number, params in enumerate((given, named)):
            it.process.says({"id": f"a{number}", "method": method, "params": params})
            asked = (await editor.got(method, number + 1))[-1]
            editor.answers_with(asked, {"done": number})
            expected = {"jsonrpc": "2.0", "id": f"a{number}", "result": {"done": number}}
            await until(partial(it.process.received.__contains__, expected))
        told = [each["params"] for each in editor.asked(method)]
        assert told == [given, {**given, "sessionId": it.first.session}]


@pytest.mark.parametrize("method", ["_own/told", "goal/told", "session/goal_told"])
@every
async def test_an_unknown_notification_passes_in_both_directions(
    tmp_path: Path, client: int, agent: int, method: str
) -> None:
    async with pair(tmp_path, client, agent) as it:
        given = {"a": [1], "_meta": {"k": 1}}
        it.first.client.notify(method, given)
        it.first.client.notify(method, {**given, "sessionId": it.first.session})
        await until(lambda: len(it.agent.params(method)) == 2)
        assert it.agent.params(method) == [given, {**given, "sessionId": it.at_agent()}]
        for params in (given, {**given, "sessionId": it.at_agent()}):
            it.process.says({"method": method, "params": params})
        told = [each["params"] for each in await it.first.client.got(method, 2)]
        assert told == [given, {**given, "sessionId": it.first.session}]


@every
async def test_unknown_members_of_capabilities_and_of_initialize_pass_in_both_directions(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with pair(tmp_path, client, agent, **ABILITY, session={"trips": {}}) as it:
        (asked,) = it.agent.params("initialize")
        able = asked["capabilities" if agent == 2 else "clientCapabilities"]
        assert able["goals"] == ABILITY["goals"]
        assert able["session"]["trips"] == {}
        assert (able["_meta"]["k"], asked["_meta"]["k"], asked["creed"]) == (1, 2, 1)
        told = it.first.hello
        able = told["capabilities" if client == 2 else "agentCapabilities"]
        assert able["goals"] == ABILITY["goals"]
        assert able["session" if client == 2 else "sessionCapabilities"]["trips"] == {}
        assert (able["_meta"]["k"], told["_meta"]["k"], told["motto"]) == (1, 2, "x")


@every
async def test_unknown_parameters_and_meta_of_a_new_session_and_of_a_prompt_pass(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with pair(tmp_path, client, agent) as it:
        (new,) = it.agent.params("session/new")
        assert (new["color"], new["_meta"]) == ("red", {"k": 1})
        assert (it.first.opened["mood"], it.first.opened["_meta"]["k"]) == ("x", 1)
        ended = await it.first.prompts()
        (prompt,) = it.agent.params("session/prompt")
        assert (prompt["color"], prompt["_meta"]) == ("red", {"k": 1})
        assert prompt["prompt"][1] == BLOCK
        if agent == 1:
            assert ended["_meta"]["k"] == 1


# --- kinds ----------------------------------------------------------------------------------------


def call(version: int, **members: object) -> Json:
    """Return the update that opens a tool call with an item of an unknown kind."""
    kind = "tool_call_update" if version == 2 else "tool_call"
    known = {"type": "content", "content": TEXT}
    content = [known, ITEM, {"type": "content", "content": BLOCK}]
    named = {"sessionUpdate": kind, "toolCallId": "c", "title": "t", "status": "pending"}
    return {**named, "content": content, **members}


@asynccontextmanager
async def three(
    home: Path, client: int, agent: int, *shown: Json, reason: str = "end_turn"
) -> AsyncIterator[tuple[Pair, list[Speaker], list[Speaker]]]:
    """A session with clients that take unknown kinds, of both versions, and one that doesn't.

    The agent has shown all this in a turn. The last value has the one client alone.
    """
    async with pair(home, client, agent, **ABILITY) as it:
        it.agent.shown, it.agent.reason = list(shown), reason
        declares = await it.another(1, **ABILITY)
        strict = await it.another(1)
        newer = await it.another(2)
        await it.first.prompts()
        await until(lambda: all(TEXT in each.blocks() for each in (strict, declares, newer)))
        yield it, [it.first, declares, newer], [strict]


@pytest.mark.hazard("T3.7", "T3.8")
@every
async def test_an_update_of_an_unknown_kind_is_shown_live_to_whoever_takes_it_and_not_recorded(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with three(tmp_path, client, agent, UPDATE) as (it, able, strict):
        assert [each.shown("goal_update") for each in able] == [[UPDATE]] * 3
        assert strict[0].shown("goal_update") == []
        for each in able:
            await each.loads(it.first.session)
            assert TEXT in each.blocks()
            assert each.shown("goal_update") == []


@pytest.mark.hazard("T3.7", "X1.2")
@every
async def test_content_of_an_unknown_kind_reaches_whoever_takes_it_also_in_a_replay(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with three(tmp_path, client, agent, CHUNK, call(agent)) as (it, able, strict):
        for number in range(2):
            for each in (*able, *strict):
                if number:
                    await each.loads(it.first.session)
                opens = "tool_call_update" if each.version == 2 else "tool_call"
                shown = each.shown(opens)[0]
                kinds = [item["type"] for item in shown["content"]]
                takes = each in able
                assert kinds == (["content", "chart", "content"] if takes else ["content"])
                assert [b["type"] for b in each.blocks()] == ["hologram"] * takes + ["text"]


@pytest.mark.hazard("T3.7", "X1.2")
@every
async def test_a_question_shows_content_of_an_unknown_kind_to_whoever_takes_it(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with three(tmp_path, client, agent, call(agent)) as (it, able, strict):
        options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
        asked: Json = {"sessionId": it.at_agent(), "options": options}
        about = {**call(agent), "kind": "other"}
        del about["sessionUpdate"]
        if agent == 2:
            asked |= {"title": "t", "subject": {"type": "tool_call", "toolCall": about}}
        else:
            asked["toolCall"] = about
        it.process.says({"id": "q", "method": "session/request_permission", "params": asked})
        for each in (*able, *strict):
            (question,) = await each.client.got("session/request_permission")
            params = question["params"]
            told = params["subject"]["toolCall"] if each.version == 2 else params["toolCall"]
            assert [item["type"] for item in told["content"]] == (
                ["content", "chart", "content"] if each in able else ["content"]
            )
        answer = {"outcome": {"outcome": "selected", "optionId": "y"}}
        it.first.client.answers_with(question, answer)


@pytest.mark.hazard("T3.7", "X1.2")
@every
async def test_an_option_of_an_unknown_kind_reaches_whoever_takes_it(
    tmp_path: Path, client: int, agent: int
) -> None:
    options = [option(agent, "other", "dial")]
    changed: Json = {"sessionUpdate": "config_option_update", "configOptions": options}
    async with three(tmp_path, client, agent, changed) as (_, able, strict):
        for each in (*able, *strict):
            named = "configId" if each.version == 2 else "id"
            opened = [given[named] for given in each.opened["configOptions"]]
            assert opened == ["known", "odd"] if each in able else ["known"]
            (told,) = each.shown("config_option_update")[-1:]
            expected = [option(each.version, "other", "dial")] if each in able else []
            assert told["configOptions"] == expected


@every
async def test_an_option_of_an_unknown_kind_can_be_set(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with pair(tmp_path, client, agent, **ABILITY) as it:
        it.agent.script["session/set_config_option"] = {"configOptions": []}
        given = {"configId": "odd", "value": {"turn": 3}, "type": "dial"}
        named = {"sessionId": it.first.session, **given}
        await it.first.client.ask("session/set_config_option", named)
        (asked,) = it.agent.params("session/set_config_option")
        assert asked == {**given, "sessionId": it.at_agent()}


@pytest.mark.hazard("T3.7", "X1.2")
@every
async def test_an_unknown_stop_reason_reaches_whoever_takes_it_and_is_a_good_end_for_others(
    tmp_path: Path, client: int, agent: int
) -> None:
    async with three(tmp_path, client, agent, reason="goal_reached") as (_, able, strict):
        first, second, newer = able
        states = [each["stopReason"] for each in newer.updates() if "stopReason" in each]
        assert states == ["goal_reached"]
        for speaker in (second, *strict):
            ended = await speaker.prompts()
            assert ended["stopReason"] == ("goal_reached" if speaker in able else "end_turn")
            assert "stopReason" not in ended.get("_meta", {}).get("acp_bridge", {})
        assert (await first.prompts())["stopReason"] == "goal_reached"


@pytest.mark.hazard("T3.7", "X1.2")
@pytest.mark.parametrize("agent", [1, 2])
@pytest.mark.parametrize("told", [{}, {"goals": False}, {"session": {"compaction": {}}}])
async def test_a_client_whose_ability_the_agent_was_not_shown_gets_no_unknown_kind(
    tmp_path: Path, agent: int, told: Json, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with pair(tmp_path, 1, agent, **told) as it:
        it.agent.shown, it.agent.reason = [UPDATE, CHUNK, UPDATE], "goal_reached"
        second = await it.another(1, **ABILITY)
        assert (await it.first.prompts())["stopReason"] == "end_turn"
        await until(lambda: TEXT in second.blocks())
        for each in (it.first, second):
            assert each.shown("goal_update") == []
            assert each.blocks() == [TEXT]
    said = [each for each in caplog.messages if "client.kept_from" in each]
    assert len(said) == 2


@pytest.mark.hazard("T3.8")
@pytest.mark.parametrize("client", [1, 2])
async def test_an_unknown_update_in_an_agent_s_own_replay_of_a_new_session_is_recorded(
    tmp_path: Path, client: int
) -> None:
    async with pair(tmp_path, client, 1, **ABILITY) as it:

        async def load(process: Process, params: Json) -> Json:
            process.shows(params["sessionId"], {**CHUNK, "content": TEXT})
            process.shows(params["sessionId"], UPDATE)
            return {}

        it.agent.script["session/load"] = load
        it.agent.rows = [{"sessionId": "old", "cwd": SETUP["cwd"]}]
        for _ in range(2):
            await it.first.loads("old")
            assert it.first.blocks() == [TEXT]
            assert it.first.shown("goal_update") == [UPDATE]


@pytest.mark.parametrize("of", ["promptCapabilities", "mcpCapabilities", "sessionCapabilities"])
def test_an_unknown_flag_of_an_agent_of_version_1_is_an_object_in_version_2_or_absent(
    of: str,
) -> None:
    can = {of: {"on": True, "off": False, "none": None, "more": {"x": [1]}}}
    told = greeting_to_v2.for_client({"agentCapabilities": can})["capabilities"]["session"]
    names = {"promptCapabilities": "prompt", "mcpCapabilities": "mcp"}
    said = told[names[of]] if of in names else told
    assert {name: said[name] for name in said if name in can[of]} == {"on": {}, "more": {"x": [1]}}
