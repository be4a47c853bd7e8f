"""`acp-bridge run` on a bridge in memory: the answer, the exit code, and every way to end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.core.wire.peer import Call
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.shared import headless
from acp_bridge.terminal.shared.headless import Order
from acp_bridge.terminal.shared.permissions import Policy
from acp_bridge.terminal.shared.waiting import Stop
from tests.core.session.waiting import quiet
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to
from tests.support.waiting import until
from tests.terminal.shared.screens import MemoryScreen

ORDER = Order("do it", "/w")
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


class Run:
    """`acp-bridge run` beside the bridge that it talks to."""

    def __init__(self, order: Order, **answers: Any) -> None:
        opened = {"session/new": {"sessionId": "s1"}, "session/resume": {}}
        self.bridge = FakeBridge(**{**opened, **answers})
        self.screen, self.stop = MemoryScreen(), Stop()
        self.code: Exit | None = None
        self.over = anyio.Event()
        self._order = order

    async def go(self) -> None:
        @asynccontextmanager
        async def connect(listener: Listener) -> AsyncIterator[Connection]:
            async with connection_to(self.bridge, listener) as connection:
                yield connection

        self.code = await headless.run(self._order, self.screen, connect, self.stop)
        self.over.set()

    async def prompted(self) -> Call:
        return await self.bridge.asked("session/prompt")

    async def end(self, call: Call, reason: str = "end_turn") -> Exit:
        self.bridge.peer.answer(call.id, {"stopReason": reason})
        return await self.ended()

    async def ended(self) -> Exit:
        await self.over.wait()
        assert self.code is not None
        return self.code

    async def permission(
        self, kind: str | None, options: Any = OPTIONS, own: Json | None = None, **card: Any
    ) -> Any:
        """The outcome that the command chooses."""
        call = {"toolCallId": "t", "title": "a \x1b title", **card}
        if kind:
            call["kind"] = kind
        params = {"sessionId": "s1", "toolCall": call, "options": options}
        params |= {"_meta": {"acp_bridge": own}} if own else {}
        before = len(self.bridge.answered)
        self.bridge.ask("session/request_permission", params)
        await self.bridge.until(lambda: len(self.bridge.answered) > before)
        answer: Any = self.bridge.answered[-1]
        return answer.result["outcome"].get("optionId", answer.result["outcome"]["outcome"])


@asynccontextmanager
async def running(order: Order = ORDER, /, **answers: Any) -> AsyncIterator[Run]:
    run = Run(order, **answers)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.go)
            yield run
            await run.over.wait()


async def test_the_answer_is_on_stdout_and_everything_else_is_progress() -> None:
    async with running() as run:
        call = await run.prompted()
        assert call.params["prompt"] == [{"type": "text", "text": "do it"}]
        bridge = run.bridge
        bridge.say("s1", "thinking", kind="agent_thought_chunk")
        bridge.update("s1", "tool_call", toolCallId="t", title="Run\n ls", kind="execute")
        bridge.update("s1", "tool_call_update", toolCallId="t", status="failed")
        bridge.say("s1", "Hello ")
        bridge.say("s1", "world.")
        assert await run.end(call) is Exit.DONE
    assert run.screen.text == "Hello world.\n"
    assert run.screen.told == ["acp-bridge: session s1", "- Run ls", "- Run ls: failed"]


@pytest.mark.parametrize("odd", [None, [1], "end_turn", 7])
async def test_an_answer_that_is_no_object_ends_the_command_as_one_without_a_reason_does(
    odd: Any,
) -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.say("s1", "Hello.")
        run.bridge.peer.answer(call.id, odd)
        assert await run.ended() is Exit.DONE
    assert run.screen.text == "Hello.\n"


async def test_messages_with_something_between_them_are_paragraphs() -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.say("s1", "One.")
        run.bridge.update("s1", "tool_call", toolCallId="t", title="x")
        run.bridge.say("s1", "Two.\n")
        await run.end(call)
    assert run.screen.text == "One.\n\nTwo.\n"


async def test_escape_sequences_of_the_model_reach_neither_stdout_nor_stderr() -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.say("s1", "a\x1b[2Jb")
        run.bridge.update("s1", "tool_call", toolCallId="t", title="\x1b]0;x\x07")
        await run.end(call)
    assert run.screen.text == "a\\x1b[2Jb\n"
    assert run.screen.told[-1] == "- \\x1b]0;x\\x07"


async def test_escape_sequences_in_the_id_of_a_call_without_a_title_reach_no_stderr() -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.update("s1", "tool_call_update", toolCallId="\x1b]0;x\x07", status="failed")
        await run.end(call)
    assert run.screen.told[-1] == "- \\x1b]0;x\\x07: failed"


async def test_as_json_too_no_control_reaches_a_terminal_and_the_value_is_the_same() -> None:
    async with running(Order("do it", "/w", json=True)) as run:
        call = await run.prompted()
        run.bridge.say("s1", "a\x9b2J\u202e\x7f\u2028")
        await run.end(call)
    said = run.screen.text.splitlines()[0]
    assert "\\u009b2J\\u202e\\u007f\\u2028" in said
    assert json.loads(said)["update"]["content"]["text"] == "a\x9b2J\u202e\x7f\u2028"


async def test_a_notice_of_the_bridge_is_no_part_of_the_answer() -> None:
    async with running() as run:
        call = await run.prompted()
        chunk = {"sessionUpdate": "agent_message_chunk"}
        content = {"type": "text", "text": "\n\n[acp-bridge] Going on.\n\n"}
        meta = {"acp_bridge": {"notice": True}}
        params = {"sessionId": "s1", "update": {**chunk, "content": content}, "_meta": meta}
        run.bridge.peer.notify("session/update", params)
        await run.end(call)
    assert run.screen.text == ""
    assert run.screen.told[-1] == "[acp-bridge] Going on."


async def test_as_json_each_update_is_a_line_as_it_came_and_the_outcome_the_last() -> None:
    async with running(Order("do it", "/w", json=True)) as run:
        call = await run.prompted()
        run.bridge.say("s1", "a\x1b[2J")
        await run.permission("edit")
        await run.end(call)
    update = {"sessionUpdate": "agent_message_chunk"}
    said = {**update, "content": {"type": "text", "text": "a\x1b[2J"}}
    assert run.screen.lines == [
        {"sessionId": "s1", "update": said},
        {"sessionId": "s1", "stopReason": "end_turn", "denied": ["a \x1b title"], "exitCode": 3},
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", Exit.DONE),
        ("max_tokens", Exit.LIMIT),
        ("max_turn_requests", Exit.LIMIT),
        ("refusal", Exit.REFUSAL),
        ("cancelled", Exit.CANCELLED),
        ("of a later protocol", Exit.DONE),
    ],
)
async def test_the_stop_reason_is_the_exit_code(reason: str, code: Exit) -> None:
    async with running() as run:
        assert await run.end(await run.prompted(), reason) is code


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", []),
        (
            "max_turn_requests",
            ["acp-bridge: the agent stopped at a limit of tokens or of requests"],
        ),
        ("refusal", ["acp-bridge: the agent refused"]),
        ("cancelled", ["acp-bridge: the turn was cancelled by another client"]),
    ],
)
async def test_a_turn_that_has_not_simply_ended_is_told_beside_the_answer(
    reason: str, told: list[str]
) -> None:
    async with running() as run:
        await run.end(await run.prompted(), reason)
        assert run.screen.told == ["acp-bridge: session s1", *told]


SPENT: Json = {"state": "held", "seconds": 0, "budget": {"cost": 6}}


def paused(run: Run, pause: Json) -> None:
    """Let the bridge tell that the session stands still."""
    told = {"sessionId": "s1", "update": {"sessionUpdate": "session_info_update"}}
    meta = {"_meta": {"acp_bridge": {"pause": pause}}}
    run.bridge.peer.notify("session/update", {**told, **meta})


@pytest.mark.parametrize(("reason", "code"), [("cancelled", Exit.LIMIT), ("end_turn", Exit.DONE)])
async def test_a_turn_that_is_cancelled_since_the_budget_is_spent_says_so(
    reason: str, code: Exit
) -> None:
    async with running() as run:
        call = await run.prompted()
        turn = {"promptId": "p", "mine": True}
        run.bridge.peer.notify("_acp_bridge/state", {"sessionId": "s1", "turn": turn})
        paused(run, SPENT)
        assert await run.end(call, reason) is code
        why = ["acp-bridge: the budget of the session is spent: the turn was cancelled"]
        assert run.screen.told[1:] == (why if code else [])


@pytest.mark.parametrize("turn", [None, {"promptId": "p", "mine": False}])
async def test_a_prompt_that_is_held_since_the_budget_is_spent_is_cancelled(
    turn: Json | None,
) -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.peer.notify("_acp_bridge/state", {"sessionId": "s1", "turn": turn})
        paused(run, {"state": "held", "seconds": 0, "usageLimit": {}})
        paused(run, SPENT)
        paused(run, SPENT)
        await run.bridge.until(lambda: "session/cancel" in str(run.bridge.notified))
        await quiet()
        assert not run.over.is_set()  # the answer is waited for
        assert await run.end(call, "cancelled") is Exit.LIMIT


async def test_in_a_session_that_is_held_for_its_budget_already_no_go_is_waited_for() -> None:
    held = {"_meta": {"acp_bridge": {"pause": SPENT}}}
    order = Order("do it", "/w", session_id="s1")
    async with running(order, **{"session/resume": held}) as run:
        call = await run.prompted()
        await run.bridge.until(lambda: "session/cancel" in str(run.bridge.notified))
        assert await run.end(call, "cancelled") is Exit.LIMIT


@pytest.mark.parametrize("has_login", [True, False])
async def test_every_agent_is_told_that_no_demo_may_answer(has_login: bool) -> None:
    """The built-in agent may stand behind `--`, too."""
    async with running(Order("do it", "/w", has_login=has_login)) as run:
        call = await run.prompted()
        assert call.params["_meta"] == {"noDemo": True}
        await run.end(call)


@pytest.mark.parametrize("has_login", [True, False])
async def test_of_a_login_is_spoken_where_the_agent_has_one(has_login: bool) -> None:
    order = Order("do it", "/w", has_login=has_login)
    async with running(order, **{"session/new": RpcError(-32000, "No key")}) as run:
        assert await run.ended() is Exit.AUTHENTICATION
        hint = ["acp-bridge: the agent wants a login: use its own command for that"]
        assert run.screen.told == ["acp-bridge: No key", *(hint if has_login else [])]


@pytest.mark.parametrize(
    ("number", "code"),
    [(-32000, Exit.AUTHENTICATION), (-32603, Exit.AGENT), (-32800, Exit.CANCELLED)],
)
@pytest.mark.parametrize("method", ["initialize", "session/new", "session/prompt"])
async def test_an_error_is_told_and_is_the_exit_code(method: str, number: int, code: Exit) -> None:
    async with running(**dict[str, Any]({method: RpcError(number, "no \x1b way")})) as run:
        assert await run.ended() is code
    assert "acp-bridge: no \\x1b way" in run.screen.told


async def test_the_details_of_an_agents_error_are_told() -> None:
    error = RpcError.received(-32603, "Internal error", {"details": "out of credit"})
    async with running(**{"session/prompt": error}) as run:
        assert await run.ended() is Exit.AGENT
    assert run.screen.told[-1] == "acp-bridge: Internal error: out of credit"


async def test_the_death_of_the_bridge_is_an_error_of_acp_bridge() -> None:
    async with running() as run:
        await run.prompted()
        run.bridge.close()
        assert await run.ended() is Exit.FAILED


async def test_a_bridge_that_can_not_be_started_is_told() -> None:
    @asynccontextmanager
    async def connect(listener: Listener) -> AsyncIterator[Connection]:
        raise FileNotFoundError(2, "No such file or directory")
        yield

    screen = MemoryScreen()
    assert await headless.run(ORDER, screen, connect, Stop()) is Exit.FAILED
    assert screen.told == ["acp-bridge: the bridge can't be started: No such file or directory"]


# permissions


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        *[("read", "yes"), ("search", "yes"), ("think", "yes")],
        *[("edit", "no"), ("delete", "no"), ("move", "no"), ("execute", "no"), ("fetch", "no")],
        *[("switch_mode", "no"), ("other", "no"), (None, "no"), ("odd", "no")],
    ],
)
async def test_only_what_reads_is_allowed_and_only_once(kind: str | None, chosen: str) -> None:
    async with running() as run:
        call = await run.prompted()
        assert await run.permission(kind) == chosen
        code = await run.end(call)
    assert code is (Exit.DONE if chosen == "yes" else Exit.DENIED)
    verb = "allowed once" if chosen == "yes" else "denied"
    told = f"acp-bridge: {verb}: a \\x1b title (nothing but this title is known)"
    assert told in run.screen.told


@pytest.mark.hazard("V9")
@pytest.mark.parametrize(
    "card",
    [
        {"rawInput": {"command": "rm -rf src"}},
        {"rawInput": {"input": {"argv": ["rm", "x"]}}},
        {"content": [{"type": "diff", "path": "/etc/hosts", "newText": "x"}]},
    ],
)
async def test_what_runs_or_changes_something_is_no_reading_whatever_its_kind(
    card: dict[str, Any],
) -> None:
    async with running() as run:
        call = await run.prompted()
        assert await run.permission("read", **card) == "no"
        assert await run.end(call) is Exit.DENIED
    (told,) = [line for line in run.screen.told if "denied" in line]
    assert "rm" in told or "/etc/hosts" in told


@pytest.mark.parametrize("kind", [None, "other", 7, ["execute"]])
async def test_a_call_that_began_as_no_reading_is_none_later(kind: object) -> None:
    async with running() as run:
        call = await run.prompted()
        said = {} if kind is None else {"kind": kind}
        run.bridge.update("s1", "tool_call", toolCallId="t", title="x", **said)
        assert await run.permission("read") == "no"
        await run.end(call)


async def test_a_call_that_was_another_kind_before_is_not_known_to_only_read() -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.update("s1", "tool_call", toolCallId="t", title="x", kind="edit")
        assert await run.permission("read") == "no"
        await run.end(call)


async def test_the_kind_of_a_call_is_known_from_its_card() -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.update("s1", "tool_call", toolCallId="t", title="x", kind="read")
        assert await run.permission(None) == "yes"
        assert await run.end(call) is Exit.DONE


async def test_what_a_rule_has_denied_is_told_and_is_in_the_exit_code() -> None:
    async with running() as run:
        call = await run.prompted()
        card = {"toolCallId": "t", "title": "rm x"}
        for own, update in (
            ({}, {"sessionUpdate": "tool_call", **card}),
            ({"decision": "deny", "by": "rule"}, {"sessionUpdate": "tool_call_update", **card}),
            ({"decision": "allow", "by": "rule"}, {"sessionUpdate": "tool_call_update", **card}),
            ({"decision": "deny", "by": "client"}, {"sessionUpdate": "tool_call_update", **card}),
        ):
            meta = {"acp_bridge": {"decided": own}}
            run.bridge.peer.notify(
                "session/update", {"sessionId": "s1", "update": update, "_meta": meta}
            )
        assert await run.end(call) is Exit.DENIED
    assert [line for line in run.screen.told if "denied" in line] == [
        "acp-bridge: denied by rule: rm x"
    ]


WAITS = {"waitsForPerson": True}


async def test_where_the_users_rules_say_so_what_would_be_denied_waits_for_another_client() -> None:
    async with running() as run:
        call = await run.prompted()
        assert await run.permission("read", own=WAITS) == "yes"
        for card, decision in (("a", "allow"), ("b", "deny")):
            named = {"toolCallId": card, "title": f"make {card}", "kind": "execute"}
            asked = {**named, "rawInput": {"command": f"make {card}"}}
            params = {"sessionId": "s1", "toolCall": asked, "options": OPTIONS}
            params["_meta"] = {"acp_bridge": WAITS}
            number = run.bridge.ask("session/request_permission", params)
            await until(partial(run.screen.has_told, f"make {card}"))
            run.bridge.peer.cancel(number)
            update = {"sessionUpdate": "tool_call_update", "toolCallId": card}
            login = {"name": "pho\x1bne"} if card == "b" else {}
            own = {"acp_bridge": {"decided": {"decision": decision, "by": "client", **login}}}
            run.bridge.peer.notify(
                "session/update", {"sessionId": "s1", "update": update, "_meta": own}
            )
        assert await run.end(call) is Exit.DENIED
    assert [line for line in run.screen.told if "make" in line] == [
        "acp-bridge: waits for your word: make a",
        "acp-bridge: allowed by a person: make a",
        "acp-bridge: waits for your word: make b",
        "acp-bridge: denied by a person (pho\\x1bne): make b",
    ]


async def test_an_option_outweighs_what_the_users_rules_let_wait() -> None:
    async with running(Order("p", "/w", policy=Policy.DENY)) as run:
        call = await run.prompted()
        assert await run.permission("execute", own=WAITS) == "no"
        await run.end(call)


async def test_everything_is_allowed_once_on_the_users_word() -> None:
    async with running(Order("p", "/w", policy=Policy.ALLOW)) as run:
        call = await run.prompted()
        assert await run.permission("execute") == "yes"
        assert await run.end(call) is Exit.DONE


@pytest.mark.parametrize("policy", Policy)
async def test_nothing_is_ever_allowed_or_denied_for_good(policy: Policy) -> None:
    always = [option for option in OPTIONS if option["optionId"] == "always"]
    never = [{"optionId": "never", "name": "Never", "kind": "reject_always"}]
    async with running(Order("p", "/w", policy=policy)) as run:
        call = await run.prompted()
        assert await run.permission("read", always + never) == "cancelled"
        assert await run.end(call) is Exit.DENIED


@pytest.mark.parametrize("options", [None, [], ["x"], [{"kind": "allow_once"}]])
async def test_options_that_are_none_deny(options: Any) -> None:
    async with running(Order("p", "/w", policy=Policy.ALLOW)) as run:
        call = await run.prompted()
        assert await run.permission("read", options) == "cancelled"
        await run.end(call)


async def test_a_turn_that_the_agent_cancels_at_a_denial_was_cancelled_by_nobody_else() -> None:
    async with running() as run:
        call = await run.prompted()
        await run.permission("execute")
        assert await run.end(call, "cancelled") is Exit.DENIED


async def test_nothing_else_can_be_asked_of_it() -> None:
    async with running() as run:
        call = await run.prompted()
        run.bridge.ask("fs/read_text_file", {"sessionId": "s1", "path": "/etc/passwd"})
        await run.bridge.until(lambda: run.bridge.answered)
        answer: Any = run.bridge.answered[0]
        assert answer.error.code == -32601
        await run.end(call)
        assert run.bridge.calls[0].params["clientCapabilities"].keys() == {"_meta"}


# the end


@pytest.mark.parametrize("reason", [Exit.INTERRUPTED, Exit.TIMEOUT])
async def test_when_it_is_to_end_the_turn_is_cancelled_and_waited_for(reason: Exit) -> None:
    async with running() as run:
        call = await run.prompted()
        run.stop.ask(reason)
        assert await run.bridge.told("session/cancel") == {"sessionId": "s1"}
        run.bridge.say("s1", "stopping")
        assert not run.over.is_set()
        assert await run.end(call, "cancelled") is reason
    assert run.screen.text == "stopping\n"


async def test_asked_a_second_time_it_waits_no_longer() -> None:
    async with running() as run:
        await run.prompted()
        run.stop.ask(Exit.INTERRUPTED)
        await run.bridge.told("session/cancel")
        run.stop.ask(Exit.INTERRUPTED)
        assert await run.ended() is Exit.INTERRUPTED


async def test_it_ends_at_once_where_nothing_was_sent_yet() -> None:
    async with running(**{"session/new": None}) as run:
        await run.bridge.asked("session/new")
        run.stop.ask(Exit.INTERRUPTED)
        assert await run.ended() is Exit.INTERRUPTED
    assert "session/prompt" not in [call.method for call in run.bridge.calls]


async def test_the_time_begins_with_the_command() -> None:
    async with running(Order("p", "/w", timeout=0.01), initialize=None) as run:
        assert await run.ended() is Exit.TIMEOUT
    assert run.screen.told == ["acp-bridge: the time is over: the prompt was not sent"]


async def test_while_nobody_reads_stdout_the_bridge_is_not_read() -> None:
    async with running() as run:
        call = await run.prompted()
        run.screen.free = anyio.Event()
        run.bridge.say("s1", "one ")
        await anyio.wait_all_tasks_blocked()
        run.bridge.say("s1", "two")
        await anyio.wait_all_tasks_blocked()
        assert run.screen.text == "one "
        run.screen.free.set()
        await run.end(call)
    assert run.screen.text == "one two\n"


# a session that goes on


async def test_a_session_that_goes_on_is_resumed_in_its_own_folder() -> None:
    async with running(Order("more", "/its", session_id="s1")) as run:
        call = await run.prompted()
        assert (await run.bridge.asked("session/resume")).params == {
            "sessionId": "s1",
            "cwd": "/its",
            "mcpServers": [],
        }
        assert await run.end(call) is Exit.DONE


async def test_of_a_session_that_others_use_only_the_own_turn_is_shown() -> None:
    def state(turn: Json | None) -> Json:
        return {"sessionId": "s1", "state": "running"} | ({"turn": turn} if turn else {})

    async with running(Order("more", "/its", session_id="s1")) as run:
        call = await run.prompted()
        bridge = run.bridge
        bridge.peer.notify("_acp_bridge/state", state({"promptId": "p1", "mine": False}))
        bridge.say("s1", "theirs")
        bridge.peer.notify("_acp_bridge/state", state({"promptId": "p2", "mine": True}))
        bridge.say("other", "of another session")
        bridge.say("s1", "mine")
        await run.end(call)
    assert run.screen.text == "mine\n"
