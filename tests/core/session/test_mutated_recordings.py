"""Recordings of real agents with something spoiled in them: nothing hangs, no text is lost, and
nothing is allowed that nobody has allowed."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_bridge.core.protocol import MESSAGES, REQUEST_PERMISSION, SESSION_PROMPT, as_object
from acp_bridge.core.updates.odd_answers import end_of_turn, options_of_v1, permission_answer
from acp_bridge.core.wire.jsonrpc import Err, Ok, read_answer
from tests.core.session.living import first, living
from tests.core.session.memory import Json
from tests.support.in_memory import MEMORY

TRACES = Path(__file__).parents[3] / "fixtures" / "traces"
AGENTS = ("claude", "codex", "opencode")
REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
STATUSES = ("pending", "in_progress", "completed", "failed")
KINDS = ("allow_once", "allow_always", "reject_once", "reject_always")
#: what a member may become.
ODD = st.sampled_from(
    [None, True, False, 0, 7, -1.5, "", "x", "yes", [], {}, [None], {"text": "y"}]
)


def recorded(agent: str) -> list[Json]:
    """Return the updates and permissions of an agent's recording, as it sent them."""
    found = []
    for line in (TRACES / f"{agent}.jsons").read_text().splitlines():
        event = json.loads(line)
        if event.get("from") == "Agent" and event.get("method") == "session/update":
            found.append({"method": "session/update", "params": event["params"]})
        if event.get("from") == "Agent" and event.get("method") == REQUEST_PERMISSION:
            found.append({"id": "p", "method": REQUEST_PERMISSION, "params": event["params"]})
    for each in found:
        each["params"] = {**each["params"], "sessionId": "0"}
    return found


RECORDED = {agent: recorded(agent) for agent in AGENTS}


def members(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or object in a value with each of its indices or names."""
    names = list(value) if isinstance(value, dict) else range(len(value))
    for name in names:
        yield value, name
        if isinstance(value[name], dict | list):
            yield from members(value[name])


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """A copy of a JSON value with one or two of its members dropped, doubled or made odd."""
    copy = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 2))):
        if found := list(members(copy)):
            holder, name = draw(st.sampled_from(found))
            how = draw(st.sampled_from(["drop", "odd", "wrap", "double"]))
            if how == "drop":
                del holder[name]
            elif how == "odd":
                holder[name] = json.loads(json.dumps(draw(ODD)))
            elif how == "wrap":
                holder[name] = draw(st.sampled_from([[holder[name]], {"text": holder[name]}]))
            elif isinstance(holder, list):
                holder.insert(0, holder[name])
            else:
                holder[f"{name}2"] = holder[name]
    return copy


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[bytes], list[str]]:
    """Some lines of a recording, a few of them spoiled; and the texts of those that are whole."""
    all_ = RECORDED[draw(st.sampled_from(AGENTS))]
    start = draw(st.integers(0, max(0, len(all_) - 12)))
    chosen = all_[start : start + 12]
    if draw(st.booleans()):
        chosen = draw(st.permutations(chosen))
    told, texts = list[bytes](), list[str]()
    for message in chosen:
        said: Any = draw(st.just(message) | st.just(message) | spoiled(message))
        line = json.dumps({"jsonrpc": "2.0", **said} if isinstance(said, dict) else said).encode()
        if said == message:
            texts += text_of(message)
            line += draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"", b" \n"]))
        elif draw(st.integers(0, 4)) == 0:
            line = line[: draw(st.integers(0, len(line)))] + b"\n"
        else:
            line += b"\n"
        told.append(line)
    return told, texts


def text_of(message: Json) -> list[str]:
    update = as_object(message["params"].get("update"))
    content = as_object(update.get("content"))
    shown = update.get("sessionUpdate") in MESSAGES and content.get("text")
    return [content["text"]] if shown else []


@given(lines(), st.data())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_recording_with_spoiled_messages_costs_nothing_but_those(
    caplog: pytest.LogCaptureFixture, told: tuple[list[bytes], list[str]], data: st.DataObject
) -> None:
    caplog.clear()
    answer = data.draw(spoiled({"stopReason": "end_turn", "usage": {"inputTokens": 3}}))

    async def turn() -> None:
        with TemporaryDirectory(dir=MEMORY) as folder:
            agent = first()
            async with living(Path(folder), first=agent) as here:
                request_id = here.prompt()
                request = await agent.asked(SESSION_PROMPT)
                agent.peer.feed(b"".join(told[0]) + b"\n")
                for asked in [m for m in here.got if m.get("method") == REQUEST_PERMISSION]:
                    kinds = [each["kind"] for each in asked["params"]["options"]]
                    assert set(kinds) <= set(KINDS)
                    here.client.answers(asked["id"], data.draw(ODD))
                agent.answer(request, answer)
                result = await here.answered(request_id)
                assert result.get("stopReason") in REASONS or "code" in result
                check(here.updates(), told[1])
                chosen = [m.get("result") for m in agent.sent.messages if m.get("id") == "p"]
                assert "allow" not in json.dumps(chosen)

    anyio.run(turn)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def check(shown: list[Json], texts: list[str]) -> None:
    """Check that all texts were shown in order, with nothing beyond version 1's lists."""
    for update in shown:
        if "toolCallId" in update:
            assert isinstance(update["toolCallId"], str)
            assert update.get("status") in (None, *STATUSES)
    said = iter([text for update in shown for text in text_of({"params": {"update": update}})])
    assert all(any(text == each for each in said) for text in texts)


YES: Json = {"outcome": {"outcome": "selected", "optionId": "allow"}}
NOES: list[Any] = [
    {"outcome": {"outcome": "selected", "optionId": "deny"}},
    {"outcome": {"outcome": "cancelled"}},
    {"outcome": "cancelled"},
    {"outcome": "selected", "optionId": "deny"},
    {},
]
OFFERED: list[object] = ["allow", "deny"]


@given(st.sampled_from(NOES).flatmap(lambda no: st.just(no) | spoiled(no)))
@pytest.mark.hazard("C18.4")
def test_no_spoiled_no_is_a_yes(answer: Any) -> None:
    assert "allow" not in json.dumps(permission_answer(answer, OFFERED))


@given(spoiled(YES), st.data())
@pytest.mark.hazard("C18.3", "C18.4")
def test_a_spoiled_yes_is_a_yes_only_if_nothing_in_it_says_otherwise(
    answer: Any, data: st.DataObject
) -> None:
    found = permission_answer(answer, OFFERED)
    assert found is None or found["outcome"].items() >= YES["outcome"].items()
    if isinstance(answer, dict):
        holder = data.draw(st.sampled_from([answer, as_object(answer.get("outcome"))]))
        name, value = data.draw(
            st.sampled_from(
                [("optionId", "deny"), ("option_id", "deny"), ("cancelled", True), ("error", "no")]
            )
        )
        holder[name] = value
        found = permission_answer(answer, OFFERED) if holder else None
        assert found is None or found["outcome"]["optionId"] != "allow"


@given(spoiled({"stopReason": "cancelled", "_meta": {"x": 1}, "usage": {"n": [1]}}))
def test_every_answer_to_a_prompt_has_a_reason_of_version_1(result: Any) -> None:
    answer, _ = end_of_turn(Ok(result))
    assert isinstance(answer, Err) or answer.result["stopReason"] in REASONS


@given(spoiled({"id": 1, "error": {"code": -32000, "message": "m", "data": {"details": "d"}}}))
def test_every_answer_is_read(message: Any) -> None:
    if isinstance(message, dict):
        answer = read_answer(message)
        assert isinstance(answer, Ok) or isinstance(answer.error.message, str)


@given(spoiled([{"optionId": "a", "name": "A", "kind": "allow_once"}]))
def test_every_option_that_is_shown_is_one_of_version_1(options: Any) -> None:
    for each in options_of_v1(options):
        assert each["kind"] in KINDS
        assert isinstance(each["name"], str)
