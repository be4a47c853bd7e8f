"""Steering: words of the user's that join the turn that runs, or wait, or are given back."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.journal import PromptState, file
from acp_bridge.core.protocol import user_chunk
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.bridge.test_questions import OPTIONS, PERMISSION, chosen
from tests.core.session.test_from_agent import USAGE
from tests.core.sessions.agent import Agent, Gate, Json, Process, until
from tests.core.sessions.bench import Bench, bench
from tests.core.sessions.editor import Editor
from tests.support.slow_disk import SlowDisk

STEER = "_session/steering"


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


@dataclass(slots=True)
class Running:
    """A session whose turn runs until its gate opens."""

    it: Bench
    id: str
    gate: Gate
    turn: Any
    #: what the agent makes of the next words.
    outcomes: list[Any] = field(default_factory=list)

    @property
    def process(self) -> Process:
        return self.it.agent.processes[-1]

    @property
    def prompted(self) -> list[str]:
        """The texts of the prompts that the agent got."""
        return [each["prompt"][0]["text"] for each in self.it.agent.params("session/prompt")]

    @property
    def steered(self) -> list[str]:
        """The texts that the agent got for the running turn."""
        return [each["prompt"][0]["text"] for each in self.it.agent.params(STEER)]

    def steers(self, text: str, client: Editor | None = None, **more: Any) -> Any:
        """Send a prompt that is to join the turn; returns the request's id."""
        own = {"_meta": {"acp_bridge": {"delivery": "steer"}}}
        params = {"sessionId": self.id, "prompt": words(text), **own, **more}
        return (client or self.it.editor).send("session/prompt", params)

    async def has_accepted(self, text: str) -> tuple[Editor, Any]:
        """Let one more client steer; its words are on disk. Returns it and its request's id."""
        client = await self.it.attached(self.id, accepted=True)
        asked = self.steers(text, client)
        await client.got("_acp_bridge/accepted")
        await self.it.editor.handled()
        return client, asked

    def asks_to_steer(self, text: str, **meta: Any) -> Any:
        params: Json = {"sessionId": self.id, "prompt": words(text)}
        if meta:
            params["_meta"] = {"steering": meta}
        return self.it.editor.send(STEER, params)

    def says(self, text: str) -> None:
        self.process.update(str(self.process.agent_session_id), text)

    async def ends(self) -> str:
        self.gate.open()
        return str(await self.it.editor.stop_reason(self.turn))

    async def stops(self, client: Editor | None = None) -> None:
        (client or self.it.editor).notify("session/cancel", {"sessionId": self.id})
        await self.it.editor.handled()

    def first_id(self) -> Any:
        received = self.process.received  # the prompt's id, as the agent knows it
        return next(m["id"] for m in received if m.get("method") == "session/prompt")

    def left_over(self) -> list[str]:
        session = self.it.bridge._sessions.live[self.id]
        rows = session.journal.prompts(PromptState.LEFT_OVER)
        return [row.params["prompt"][0]["text"] for row in rows]

    def notices(self) -> str:
        return "".join(each for each in self.it.editor.texts(self.id) if "[acp-bridge]" in each)


@asynccontextmanager
async def running(home: Path, *, able: bool = True, **more: Any) -> AsyncIterator[Running]:
    """A session with a turn; the agent takes words into it if it is `able` to."""
    agent = Agent()
    if able:
        agent.script["initialize"]["_meta"] = {"steering": {"supported": True}}
    gate = agent.stops_at("session/prompt")
    async with bench(home, agent, drain_timeout=60, **more) as it:
        opened = await it.editor.ask("session/new", {"cwd": str(home), "mcpServers": []})
        session_id = opened["sessionId"]
        here = Running(it, session_id, gate, it.editor.prompt(session_id, "runs"))

        async def steered(process: Process, params: Json) -> Any:
            return here.outcomes.pop(0) if here.outcomes else {"outcome": "injected"}

        agent.script[STEER] = steered
        await until(lambda: gate.reached)
        yield here


def _adds_context(home: Path) -> None:
    """Let a hook add to every prompt."""
    more = {"hookEventName": "UserPromptSubmit", "additionalContext": "mind the gap"}
    (home / "said.json").write_text(json.dumps({"hookSpecificOutput": more}))
    hook = f"[[UserPromptSubmit]]\ncommand = 'cat {home / 'said.json'}'\n"
    (home / "hooks.toml").write_text(hook)


def delivery(answer: Json) -> Any:
    return answer["_meta"]["acp_bridge"]["delivery"]


async def test_it_is_advertised_for_every_agent(tmp_path: Path) -> None:
    async with bench(tmp_path, Agent(), initialized=False) as it:
        answer = await it.editor.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        assert answer["_meta"]["steering"] == {"supported": True}


@pytest.mark.hazard("Q15.12", "K1")
async def test_a_prompt_that_steers_joins_the_turn_and_is_answered_with_its_end(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        other = await here.it.attached(here.id)
        asked = here.steers("also")
        await until(lambda: here.steered == ["also"])
        (sent,) = here.it.agent.params(STEER)
        assert sent["_meta"] == {"steering": {"idleBehavior": "promptRequired"}}
        assert sent["sessionId"] == here.process.agent_session_id
        await until(lambda: "also" in other.texts(here.id))
        assert not here.it.editor.answers(asked)
        here.process.shows(here.process.agent_session_id, user_chunk(words("also")[0]))
        here.says("I see")
        assert await here.ends() == "end_turn"
        answer = await here.it.editor.result(asked)
        assert (answer["stopReason"], delivery(answer)) == ("end_turn", "steered")
        assert here.prompted == ["runs"]
        loaded = await here.it.attached(here.id)
        assert [text for text in loaded.texts(here.id) if "[acp" not in text][:3] == [
            "runs",
            "also",
            "I see",
        ]


@pytest.mark.hazard("Q15")
async def test_the_method_is_answered_when_the_agent_has_taken_the_words(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        answer = await here.it.editor.result(
            here.asks_to_steer("also", idleBehavior="promptRequired")
        )
        assert answer["outcome"] == "injected"
        assert delivery(answer) == "steered"
        assert "also" not in here.it.editor.texts(here.id)  # the client shows its own words
        here.says("I see")
        await here.ends()
        assert here.prompted == ["runs"]


async def test_without_a_turn_the_method_begins_one_that_the_queue_knows_of(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.ends()
        answer = await here.it.editor.result(here.asks_to_steer("first"))
        assert answer["outcome"] == "startedNewTurn"
        assert delivery(answer) == "queued"
        await until(lambda: here.prompted == ["runs", "first"])
        assert here.steered == []


async def test_without_a_turn_words_that_are_for_one_only_are_not_taken(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.ends()
        answer = await here.it.editor.result(
            here.asks_to_steer("never", idleBehavior="promptRequired")
        )
        assert answer == {"outcome": "promptRequired", "reason": "noRunningTurn"}
        await here.it.editor.handled()
        assert here.prompted == ["runs"]


@pytest.mark.hazard("Q15.4")
async def test_words_for_one_turn_only_are_not_run_if_it_ends_without_them(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        asked = here.asks_to_steer("never", idleBehavior="promptRequired")
        queued = here.asks_to_steer("next")
        await here.it.editor.handled()
        await here.ends()
        assert (await here.it.editor.result(asked))["outcome"] == "promptRequired"
        assert (await here.it.editor.result(queued))["outcome"] == "startedNewTurn"
        await here.it.editor.ask("_acp_bridge/go", {"sessionId": here.id})
        await until(lambda: here.prompted == ["runs", "next"])


@pytest.mark.hazard("Q15", "Q10")
async def test_hooks_may_refuse_words_and_add_to_them(tmp_path: Path) -> None:
    script = """import json, sys
given = json.load(sys.stdin)["prompt"]
if given == "secret":
    print(json.dumps({"decision": "block", "reason": "no secrets"}))
else:
    more = {"hookEventName": "UserPromptSubmit", "additionalContext": "mind the gap"}
    print(json.dumps({"hookSpecificOutput": more}))
"""
    (tmp_path / "hook.py").write_text(script)
    hook = f"[[UserPromptSubmit]]\ncommand = 'python3 {tmp_path / 'hook.py'}'\n"
    (tmp_path / "hooks.toml").write_text(hook)
    async with running(tmp_path) as here:
        refused, method = here.steers("secret"), here.asks_to_steer("secret")
        assert await here.it.editor.stop_reason(refused) == "refusal"
        assert (await here.it.editor.result(method))["outcome"] == "failed"
        here.steers("also")
        await until(lambda: here.steered == ["also"])
        (sent,) = here.it.agent.params(STEER)
        assert [block["text"] for block in sent["prompt"]] == ["also", "mind the gap"]


@pytest.mark.hazard("Q15", "C10")
async def test_words_that_are_taken_back_end_their_own_hooks_and_none_of_the_turn(
    tmp_path: Path,
) -> None:
    rows = []
    for name, at_once in (
        ("UserPromptSubmit", "grep -q '\"runs\"'"),
        ("PermissionRequest", "false"),
    ):
        there, goes = tmp_path / name, tmp_path / f"{name}.goes"
        waits = f"touch {there}; until test -e {goes}; do sleep 0.02; done; exit 2"
        (tmp_path / f"{name}.sh").write_text(f"{at_once} && exit 0; {waits}\n")
        rows.append(f"[[{name}]]\ncommand = 'sh {tmp_path / name}.sh'\n")
    (tmp_path / "hooks.toml").write_text("".join(rows))
    async with running(tmp_path) as here:
        asked = here.steers("never")
        await until((tmp_path / "UserPromptSubmit").exists)
        call = {"toolCallId": "edit", "title": "Edit x"}
        params = {"toolCall": call, "options": OPTIONS, "sessionId": here.process.agent_session_id}
        here.process.says({"id": 7, "method": PERMISSION, "params": params})
        await until((tmp_path / "PermissionRequest").exists)
        here.it.editor.cancel_request(asked)
        assert await here.it.editor.stop_reason(asked) == "cancelled"
        (tmp_path / "PermissionRequest.goes").touch()
        await until(lambda: [m for m in here.process.received if m.get("id") == 7])
        (answer,) = [m for m in here.process.received if m.get("id") == 7 and "method" not in m]
        assert answer["result"]["outcome"]["outcome"] == "selected"


async def test_another_idle_behaviour_and_empty_words_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        with pytest.raises(RpcError) as refused:
            await here.it.editor.result(here.asks_to_steer("x", idleBehavior="dance"))
        assert refused.value.code == -32602
        refusal = await here.it.editor.refused(STEER, {"sessionId": here.id, "prompt": []})
        assert refusal.code == -32602
        assert here.steered == []


@pytest.mark.hazard("Q15.4")
async def test_words_for_an_agent_that_takes_none_run_before_all_that_waits(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, able=False) as here:
        behind = here.it.editor.prompt(here.id, "waits")
        asked = here.steers("first")
        method = await here.it.editor.result(here.asks_to_steer("second"))
        assert (method["outcome"], delivery(method)) == ("startedNewTurn", "queued")
        await here.ends()
        answer = await here.it.editor.result(asked)
        assert (answer["stopReason"], delivery(answer)) == ("end_turn", "queued")
        await here.it.editor.stop_reason(behind)
        assert here.prompted == ["runs", "first", "second", "waits"]
        assert here.steered == []


@pytest.mark.hazard("Q15.4")
@pytest.mark.parametrize(
    "refusal",
    [
        {"outcome": "promptRequired", "reason": "noRunningTurn"},
        {"outcome": "failed"},
        RpcError(-32602, "no images"),
        RpcError(-32601, "no such method"),
    ],
)
async def test_words_that_the_agent_did_not_take_are_the_next_to_run(
    tmp_path: Path, refusal: Any
) -> None:
    async with running(tmp_path) as here:
        here.outcomes.append(refusal)
        behind = here.it.editor.prompt(here.id, "waits")
        asked = here.steers("mine")
        await until(lambda: here.steered)
        await here.ends()
        answer = await here.it.editor.result(asked)
        assert (answer["stopReason"], delivery(answer)) == ("end_turn", "queued")
        await here.it.editor.stop_reason(behind)
        assert here.prompted == ["runs", "mine", "waits"]


@pytest.mark.hazard("Q15.9")
async def test_words_after_which_the_turn_showed_nothing_are_left_over_and_not_sent_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        asked, method = here.steers("lost"), here.asks_to_steer("lost too")
        assert (await here.it.editor.result(method))["outcome"] == "injected"
        here.process.shows(here.process.agent_session_id, USAGE)
        here.process.says({"id": here.first_id(), "result": {"stopReason": "end_turn"}})
        refusal = await here.it.editor.refusal(asked)
        assert "perhaps not read" in refusal.message
        assert await here.it.editor.stop_reason(here.turn) == "end_turn"
        assert here.left_over() == ["lost", "lost too"]
        assert here.prompted == ["runs"]
        shown = here.it.editor.prompt(here.id, "/queue")
        await here.it.editor.stop_reason(shown)
        assert ": lost (perhaps not read)" in "".join(here.it.editor.texts(here.id))


@pytest.mark.hazard("Q15.5", "Q15.6", "C1")
async def test_a_stop_before_the_words_landed_gives_them_back_and_never_runs_them(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        landing = here.it.agent.stops_at(STEER)
        sent, waits = here.steers("sent"), here.steers("waits")
        await until(lambda: landing.reached)
        await here.stops()
        assert await here.it.editor.stop_reason(waits) == "cancelled"
        assert await here.ends() == "cancelled"
        assert await here.it.editor.stop_reason(sent) == "cancelled"
        told = here.notices()
        assert told.count("Stopped before the agent took these words") == 2
        landing.open()
        await here.it.editor.handled()
        assert here.prompted == ["runs"]
        assert here.left_over() == []


@pytest.mark.hazard("Q15", "V4")
async def test_a_stop_of_the_turn_ends_words_that_another_client_had_sent_into_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        other = await here.it.attached(here.id)
        joined = here.steers("joined", other)
        await until(lambda: here.steered == ["joined"])
        await here.stops(other)
        assert not other.answers(joined)
        await here.stops()
        assert await here.ends() == "cancelled"
        assert await other.stop_reason(joined) == "cancelled"


@pytest.mark.hazard("Q15.3")
async def test_words_wait_while_the_user_is_asked_something(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        call = {"toolCallId": "edit", "title": "Edit x"}
        params = {"toolCall": call, "options": OPTIONS, "sessionId": here.process.agent_session_id}
        here.process.says({"id": 7, "method": PERMISSION, "params": params})
        (asked,) = await here.it.editor.got(PERMISSION)
        await here.has_accepted("later")
        assert here.steered == []
        here.it.editor.answers_with(asked, chosen("yes"))
        await until(lambda: here.steered == ["later"])


@pytest.mark.hazard("Q15.3")
async def test_words_wait_while_the_session_is_on_hold(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        await here.has_accepted("later")
        assert here.steered == []
        await here.it.editor.ask("_acp_bridge/go", {"sessionId": here.id})
        await until(lambda: here.steered == ["later"])


@pytest.mark.hazard("Q15.2")
async def test_words_are_sent_one_after_the_other_in_the_order_of_reading(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        landing = here.it.agent.stops_at(STEER)
        for text in ("one", "two", "three"):
            here.steers(text)
        await until(lambda: landing.reached)
        await here.it.editor.handled()
        assert here.steered == ["one"]
        landing.open()
        await until(lambda: here.steered == ["one", "two", "three"])


@pytest.mark.hazard("Q15")
async def test_a_cancel_of_its_request_takes_words_back_until_they_are_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        asked, method = here.steers("never"), here.asks_to_steer("never")
        await here.it.editor.handled()
        for each in (asked, method):
            here.it.editor.cancel_request(each)
        assert await here.it.editor.stop_reason(asked) == "cancelled"
        assert (await here.it.editor.result(method))["outcome"] == "failed"
        await here.it.editor.ask("_acp_bridge/go", {"sessionId": here.id})
        assert await here.ends() == "end_turn"
        assert (here.steered, here.prompted) == ([], ["runs"])


@pytest.mark.hazard("Q15.10", "Q15.11", "P4")
async def test_at_the_agents_death_sent_words_end_with_the_turn_and_others_are_left_over(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        sent = here.steers("sent")
        await until(lambda: here.steered == ["sent"])
        await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        other, waits = await here.has_accepted("waits")
        here.process.dies(Exit(3, None))
        assert "ended during the turn" in (await here.it.editor.refusal(sent)).message
        assert "left over" in (await other.refusal(waits)).message
        assert here.left_over() == ["waits"]
        assert here.steered == ["sent"]


@pytest.mark.hazard("Q15.1")
async def test_words_that_are_left_over_before_they_are_synced_are_answered_and_not_accepted_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk()
    async with running(tmp_path) as here:
        other = await here.it.attached(here.id, accepted=True)
        monkeypatch.setattr(file, "sync_file", disk.sync)
        waits = here.steers("waits", other)
        await until(lambda: disk.reached.is_set())
        here.process.dies(Exit(3, None))
        assert "left over" in (await other.refusal(waits)).message
        disk.goes_on.set()
        here.gate.open()
        follows = here.it.editor.prompt(here.id, "follows")
        assert await here.it.editor.stop_reason(follows) == "end_turn"
        assert not other.asked("_acp_bridge/accepted")
        assert here.left_over() == ["waits"]


@pytest.mark.hazard("Q15.11")
async def test_at_the_agents_death_who_asked_by_the_method_is_told_what_may_run_yet(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        await here.it.editor.ask("_acp_bridge/hold", {"sessionId": here.id})
        only = here.asks_to_steer("only here", idleBehavior="promptRequired")
        method = here.asks_to_steer("waits")
        await here.it.editor.handled()
        here.process.dies(Exit(3, None))
        assert (await here.it.editor.result(only))["outcome"] == "promptRequired"
        assert "left over" in (await here.it.editor.refusal(method)).message
        assert here.left_over() == ["waits"]


@pytest.mark.hazard("Q15", "R1")
async def test_words_that_the_agent_did_not_take_are_shown_once_and_keep_what_hooks_added(
    tmp_path: Path,
) -> None:
    _adds_context(tmp_path)
    async with running(tmp_path) as here:
        other = await here.it.attached(here.id)
        here.outcomes.append({"outcome": "promptRequired"})
        asked = here.steers("mine")
        await until(lambda: here.steered)
        await here.ends()
        await here.it.editor.result(asked)
        sent = here.it.agent.params("session/prompt")[-1]["prompt"]
        assert [block["text"] for block in sent] == ["mine", "mind the gap"]
        loaded = await here.it.attached(here.id)
        for client in (other, loaded):
            assert client.texts(here.id).count("mine") == 1


@pytest.mark.hazard("Q15")
@pytest.mark.parametrize("loads", [False, True])
async def test_words_of_the_method_that_run_as_a_turn_are_not_shown_to_who_sent_them(
    tmp_path: Path, loads: bool
) -> None:
    async with running(tmp_path, able=False) as here:
        if loads:
            again = {"sessionId": here.id, "cwd": str(tmp_path), "mcpServers": []}
            await here.it.editor.ask("session/load", again)
        other = await here.it.attached(here.id)
        await here.it.editor.result(here.asks_to_steer("mine"))
        await here.ends()
        await until(lambda: "echo mine" in here.it.editor.texts(here.id))
        assert "mine" not in here.it.editor.texts(here.id)
        assert "mine" in other.texts(here.id)


@pytest.mark.hazard("Q15", "Q6.1")
async def test_a_turn_with_words_that_joined_it_is_said_once_to_be_interrupted(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        here.steers("joined")
        await until(lambda: here.steered)
        session_id = here.id
    async with bench(tmp_path, Agent()) as it:
        params = {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []}
        await it.editor.ask("session/load", params)
        assert "".join(it.editor.texts(session_id)).count("Interrupted") == 1


@pytest.mark.hazard("Q15.9")
async def test_the_next_bridge_knows_which_words_were_perhaps_not_read(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        asked = here.steers("lost")
        await until(lambda: here.steered)
        await here.it.editor.handled()
        here.process.says({"id": here.first_id(), "result": {"stopReason": "end_turn"}})
        await here.it.editor.refusal(asked)
        session_id = here.id
    async with bench(tmp_path, Agent()) as it:
        params = {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []}
        await it.editor.ask("session/load", params)
        await it.editor.stop_reason(it.editor.prompt(session_id, "/queue"))
        assert ": lost (perhaps not read)" in it.editor.texts(session_id)[-1]


@pytest.mark.hazard("Q15.9", "Q6")
async def test_words_that_the_agent_has_not_answered_when_all_ends_are_left_over(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        landing = here.it.agent.stops_at(STEER)
        here.steers("sent")
        await until(lambda: landing.reached)
        await here.ends()
        session_id = here.id
    async with bench(tmp_path, Agent()) as it:
        params = {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []}
        await it.editor.ask("session/load", params)
        assert ": sent (perhaps not read)" in "".join(it.editor.texts(session_id))


async def test_a_prompt_that_was_left_over_does_not_join_a_turn_and_nobody_says_so(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        asked = [here.steers(text) for text in ("one", "two")]
        await until(lambda: here.steered == ["one", "two"])
        await here.it.editor.handled()
        here.process.says({"id": here.first_id(), "result": {"stopReason": "end_turn"}})
        for each in asked:
            await here.it.editor.refusal(each)
        run = here.it.editor.prompt(here.id, "/queue run")
        await until(lambda: here.prompted == ["runs", "one"])
        await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "/queue steer 3"))
        assert "No prompt '3' waits" in here.it.editor.texts(here.id)[-1]
        here.gate.open()
        await here.it.editor.stop_reason(run)
        assert here.prompted == ["runs", "one", "two"]


async def test_observers_can_not_steer(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        looks = await here.it.attached(here.id, observer=True)
        params = {"sessionId": here.id, "prompt": words("no")}
        assert "observer" in (await looks.refused(STEER, params)).message
        assert here.steered == []


@pytest.mark.hazard("Q15")
async def test_a_prompt_that_waits_can_be_sent_into_the_turn_by_its_number(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        first, second = (here.it.editor.prompt(here.id, text) for text in ("one", "two"))
        await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "/queue steer 3"))
        await until(lambda: here.steered == ["two"])
        here.says("I see")
        await here.ends()
        assert delivery(await here.it.editor.result(second)) == "steered"
        await here.it.editor.stop_reason(first)
        assert here.prompted == ["runs", "one"]
        await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "/queue steer 1"))
        assert "Nothing runs" in here.it.editor.texts(here.id)[-1]
