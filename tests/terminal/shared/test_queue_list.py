"""What waits, of all clients, as one at a terminal sees it and changes it by keys."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.terminal.chat.local_commands import queue_values
from acp_bridge.terminal.chat.mentions import blocks_of, text_of
from acp_bridge.terminal.chat.own_prompts import OwnPrompts
from acp_bridge.terminal.chat.prompts import Prompt
from acp_bridge.terminal.chat.queue_shown import QueueShown
from tests.terminal.shared.chat_bench import SESSION, Chat, chat
from tests.terminal.shared.test_conversation import attached, settled, texts, told

UP, DOWN, DELETE = "\x1b[A", "\x1b[B", "\x1b[3~"
IMAGE: Json = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
BEGUN = RpcError(-32600, "this prompt has begun or has ended")


def row(number: int, text: str, **more: Any) -> Json:
    own = {"promptId": f"p{number}", "number": number, "state": "waiting"}
    return {**own, "text": text, "mine": False, **more}


def shown(*rows: Json, own: OwnPrompts | None = None) -> QueueShown:
    queue = QueueShown(own or OwnPrompts(lambda: 0.0))
    queue.note({"prompts": list(rows)})
    return queue


THREE = [row(n, text) for n, text in enumerate(("one", "two", "three"), 1)]
HELD = [row(n, text, state="held") for n, text in ((4, "four"), (5, "five"))]


# --- the list itself


@pytest.mark.parametrize(
    ("number", "by", "before"),
    [(1, 1, "p3"), (2, 1, None), (3, -1, "p2"), (2, -1, "p1"), (4, 1, None), (5, -1, "p4")],
)
def test_a_prompt_moves_one_place_among_its_own_kind(
    number: int, by: int, before: str | None
) -> None:
    moved = shown(*THREE, *HELD).moved(f"p{number}", by)
    assert moved == {"promptId": f"p{number}", "before": before}


@pytest.mark.parametrize(("number", "by"), [(1, -1), (3, 1), (4, -1), (5, 1), (9, 1)])
def test_the_first_goes_no_further_up_and_the_last_no_further_down(number: int, by: int) -> None:
    assert shown(*THREE, *HELD).moved(f"p{number}", by) is None


def test_when_the_chosen_prompt_has_gone_the_one_in_its_place_is_chosen() -> None:
    queue = shown(*THREE)
    queue.enter()
    queue.step(1)
    for left, chosen in ((THREE[::2], "three"), (THREE[:1], "one"), ([], None)):
        queue.note({"prompts": left})
        assert (queue.chosen.text if queue.chosen else None) == chosen
    queue.note({"prompts": THREE})
    assert queue.chosen is None


def test_a_prompt_of_this_terminal_is_in_the_list_while_it_waits_and_no_longer() -> None:
    own = OwnPrompts(lambda: 0.0)
    queue = shown(row(1, "mine", mine=True), own=own)
    assert queue.rows == []  # it may be the one that begins as soon as it is on disk
    own.unanswered.append(prompt := Prompt("mine", []))
    prompt.prompt_id = "p1"
    assert [each.line for each in queue.rows] == ["1 waits: mine"]
    prompt.taken_back = True
    assert queue.rows == []


@pytest.mark.parametrize("odd", [{}, {"prompts": 7}, {"prompts": [7, {"promptId": 7}]}])
def test_what_the_bridge_tells_oddly_is_no_row(odd: Json) -> None:
    queue = QueueShown(OwnPrompts(lambda: 0.0))
    queue.note(odd)
    assert queue.rows == []


def test_words_in_the_line_are_those_of_the_prompt_and_what_is_no_text_stays(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.py").touch()
    elsewhere = {"type": "resource_link", "uri": "file:///other/b.py", "name": "b.py"}
    blocks = [IMAGE, *blocks_of("see @a.py, and", tmp_path), elsewhere]
    assert text_of(blocks, tmp_path) == ("see @a.py, and", [IMAGE], [elsewhere])
    two = [{"type": "text", "text": text} for text in ("one", "two")]
    assert text_of(two, tmp_path)[0] == "one\ntwo"


async def test_numbers_are_completed_behind_the_words_that_take_one(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        bridge.peer.notify("_acp_bridge/queue", {"prompts": [*THREE[:2], *HELD]})
        await settled(bridge)
        for words, names in (
            ("drop", "1 2 4 5"),
            ("edit", "1 2 4 5"),
            ("steer", "1 2"),
            ("move 5", "before after first last"),
            ("move 5 before", "4"),
            ("move 5 after", "4"),
            ("move 9", ""),
            ("hold", ""),
            ("edit 1", ""),
        ):
            found = queue_values(talk, words.split())
            assert " ".join(each.name for each in found) == names


# --- on the screen


class Queue:
    """A bridge's part of a chat: what waits there, and the answers to its changes."""

    def __init__(self, running: Chat) -> None:
        self.running, self.bridge = running, running.bridge
        self.terminal, self.type = running.terminal, running.type
        #: the rows, with the blocks of each prompt.
        self.rows: list[Json] = []
        for name, answer in (
            ("list", lambda _: {"prompts": self.rows}),
            ("move", self._move),
            ("edit", self._edit),
            ("drop", self._drop),
        ):
            self.bridge.answers[f"_acp_bridge/queue/{name}"] = answer

    def tell(self, *rows: Json) -> None:
        if rows:
            self.rows = [{"prompt": [{"type": "text", "text": r["text"]}], **r} for r in rows]
        rows = tuple({k: v for k, v in each.items() if k != "prompt"} for each in self.rows)
        self.bridge.peer.notify("_acp_bridge/queue", {"sessionId": SESSION, "prompts": rows})

    def _move(self, params: Json) -> Json:
        (moved,) = (each for each in self.rows if each["promptId"] == params["promptId"])
        rest = [each for each in self.rows if each is not moved]
        ids = [each["promptId"] for each in rest]
        at = ids.index(params["before"]) if params["before"] else len(rest)
        self.rows = [*rest[:at], moved, *rest[at:]]
        self.tell()
        return {}

    def _edit(self, params: Json) -> Json:
        for each in self.rows:
            if each["promptId"] == params["promptId"]:
                each["prompt"] = params["prompt"]
                each["text"] = params["prompt"][-1]["text"]
        self.tell()
        return {}

    def _drop(self, params: Json) -> Json:
        self.rows = [each for each in self.rows if each["promptId"] != params["promptId"]]
        self.tell()
        return {}

    def asked(self, method: str) -> list[Json]:
        """The params of all requests of a method, without the session."""
        calls = [c for c in self.bridge.calls if c.method == f"_acp_bridge/queue/{method}"]
        return [{k: v for k, v in call.params.items() if k != "sessionId"} for call in calls]

    async def own(self, number: int, text: str) -> Any:
        """Let the person enter a prompt that waits; returns its request."""
        call = await self.running.prompt(text)
        ids = {"requestId": call.id, "promptId": f"p{number}"}
        self.bridge.peer.notify("_acp_bridge/accepted", ids)
        return call


@asynccontextmanager
async def queue(folder: Path, **kinds: Any) -> AsyncGenerator[Queue]:
    async with chat(folder, **kinds) as running:
        here = Queue(running)
        told(running.bridge, "running", prompt="theirs")
        yield here


async def test_a_number_is_completed_while_it_is_typed_with_the_words_of_its_prompt(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.type("/queue  move 3 before ")
        await here.terminal.shows("  1  one\n  2  two\n")
        here.type("2")
        await here.terminal.hides("  1  one")
        here.type("\t\r\r")
        await here.running.prompted("/queue  move 3 before 2")


async def test_what_waits_of_all_is_listed_with_numbers_and_whose_it_is(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        call = await here.running.prompt("mine")
        await here.terminal.shows("  waits: mine\n")
        here.tell(row(3, "theirs"), row(4, "mine", mine=True), row(2, "old", state="held"))
        here.bridge.peer.notify("_acp_bridge/accepted", {"requestId": call.id, "promptId": "p4"})
        await here.terminal.shows(
            "  3 waits, another's: theirs\n  4 waits: mine\n  2 left over: old\n\n»"
        )
        told(here.bridge, "running", prompt="theirs", waiting=2, clients=3)
        await here.terminal.shows("Tab: queue · 3 clients")
        assert "of others" not in here.terminal.screen


async def test_five_rows_are_shown_and_the_rest_is_counted_at_40_columns_too(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path, columns=40) as here:
        here.tell(*(row(n, f"the words of prompt number {n} of them") for n in range(1, 9)))
        await here.terminal.shows("  1 waits, another's: the words of pr...\n")
        await here.terminal.shows("  5 waits, another's: the words of pr...\n  … 3 more\n")
        here.type("\t" + 7 * DOWN)
        await here.terminal.shows("  … 3 more\n")
        await here.terminal.shows("* 8 waits, another's: the words of pr...\n")
        await here.terminal.shows("e edits, d drops, K/J move, Esc leaves")


async def test_on_a_low_terminal_the_line_and_the_chosen_row_are_seen(tmp_path: Path) -> None:
    async with queue(tmp_path, columns=40, rows=6) as here:
        here.tell(*(row(n, f"number {n}") for n in range(1, 9)))
        await here.terminal.shows("Tab: queue")
        here.type("\t" + 6 * DOWN)
        await here.terminal.shows("* 7 waits, another's: number 7\n\n»\n")


async def test_arrows_choose_and_capital_letters_or_alt_and_shift_with_arrows_move(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("3 waits")
        here.type(f"\t{DOWN}{DOWN}K")
        await here.terminal.shows("1 waits, another's: one\n* 3 waits, another's: three\n  2")
        here.type("\x1b[1;3A\x1b[1;2B")  # before the first one is told, each waits for the other
        await here.terminal.until(lambda: len(here.asked("move")) == 3)
        assert [move["before"] for move in here.asked("move")] == ["p2", "p1", "p2"]
        here.type("J")
        await here.terminal.shows("  1 waits, another's: one\n  2 waits, another's: two\n* 3")


async def test_two_moves_typed_at_once_go_two_places(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("3 waits")
        here.type("\tJJ")
        await here.terminal.shows("3 waits, another's: three\n* 1 waits, another's: one\n")


@pytest.mark.parametrize("key", ["d", DELETE])
async def test_a_prompt_of_another_is_dropped_and_the_transcript_says_so(
    tmp_path: Path, key: str
) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("3 waits")
        here.type(f"\t{DOWN}{key}")
        await here.terminal.shows("dropped: two")
        await here.terminal.shows("  1 waits, another's: one\n* 3 waits")
        assert here.asked("drop") == [{"promptId": "p2"}]


async def test_an_own_prompt_that_is_dropped_is_gone_without_a_word(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        call = await here.own(1, "mine")
        here.tell(row(1, "mine", mine=True))
        await here.terminal.shows("1 waits: mine")
        here.bridge.answers["_acp_bridge/queue/drop"] = None
        here.type("\td")
        await here.terminal.hides("waits: mine")
        here.bridge.peer.answer(call.id, {"stopReason": "cancelled"})
        here.running.say("on\n\n")
        await here.terminal.shows("on")
        assert not any(word in here.terminal.everything for word in ("mine", "stopped"))


async def test_a_drop_that_is_refused_is_said_and_the_prompt_stays_listed(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        await here.own(1, "mine")
        here.tell(row(1, "mine", mine=True))
        await here.terminal.shows("1 waits: mine")
        here.bridge.answers["_acp_bridge/queue/drop"] = BEGUN
        here.type("\td")
        await here.terminal.shows("nothing is changed: this prompt has begun or has ended")
        await here.terminal.shows("waits: mine")


async def test_words_are_edited_in_the_line_and_enter_sends_them_with_the_images(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as here:
        here.tell(row(1, "one", prompt=[IMAGE, {"type": "text", "text": "one\nand more"}]))
        await here.terminal.shows("1 waits")
        here.type("\te")
        await here.terminal.shows("» one\n  and more")
        await here.terminal.shows("prompt 1: Enter saves, Esc gives up")
        here.type(" of it\r")
        await here.terminal.shows("1 waits, another's: one and more of it\n\n»\n")
        edited = [IMAGE, {"type": "text", "text": "one\nand more of it"}]
        assert here.asked("edit") == [{"promptId": "p1", "prompt": edited}]
        assert not [call for call in here.bridge.calls if call.method == "session/prompt"]


async def test_an_edit_is_given_up_with_escape_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.type("\te")
        await here.terminal.shows("» one")
        here.type("\x1b")
        await here.terminal.hides("» one")
        here.type("hello\r")
        await here.running.prompted("hello")
        assert here.asked("edit") == []
        assert "_acp_bridge/cancel" not in [call.method for call in here.bridge.calls]


async def test_up_takes_nothing_back_into_the_words_of_an_edit(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        await here.own(4, "mine")
        here.tell(*THREE, row(4, "mine", mine=True))
        await here.terminal.shows("4 waits: mine")
        here.type("\te")
        await here.terminal.shows("» one")
        here.type(f"\x15{UP}")  # what was entered before
        await here.terminal.shows("» mine")
        await settled(here.bridge)
        assert here.bridge.notified == []
        await here.terminal.shows("4 waits: mine")


async def test_words_whose_edit_is_refused_come_back_into_the_line(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.bridge.answers["_acp_bridge/queue/edit"] = BEGUN
        here.type("\te")
        await here.terminal.shows("» one")
        here.type(" more\r")
        await here.terminal.shows("nothing is changed: this prompt has begun or has ended")
        await here.terminal.shows("» one more\n")
        here.type("\r")
        await here.running.prompted("one more")


async def test_a_prompt_that_has_begun_when_it_is_to_be_edited_is_said(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.rows = []
        here.type("\te")
        await here.terminal.shows("nothing is changed: this prompt has begun or has ended")
        await here.terminal.shows("Tab: queue")


async def test_r_runs_what_is_left_over_and_nothing_else(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(THREE[0], HELD[0])
        await here.terminal.shows("4 left over")
        here.type("\tr")
        await here.terminal.shows("* 1 waits")
        assert not [call for call in here.bridge.calls if call.method == "session/prompt"]
        here.type(f"{DOWN}")
        await here.terminal.shows("r runs")
        here.type("r")
        await here.running.prompted("/queue run")


async def test_escape_leaves_the_list_and_what_is_typed_or_pasted_there_is_no_prompt(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.type("\txyz\x1bb\n")
        await here.terminal.shows("* 1 waits")
        here.type("\x1b")
        await here.terminal.hides("* 1 waits")
        await here.terminal.shows("»\n")
        assert "_acp_bridge/cancel" not in [call.method for call in here.bridge.calls]
        here.type("\t\x1b[200~pasted words\x1b[201~")
        await here.terminal.shows("» pasted words")
        await here.terminal.hides("* 1 waits")


@pytest.mark.hazard("V9")
async def test_a_key_of_the_list_answers_no_permission(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.type("\t")
        await here.terminal.shows("* 1 waits")
        here.running.ask()
        await here.terminal.shows("Alt-1 or Alt-y: Allow")
        here.running.now += 1
        here.type("yn1d")
        await here.terminal.shows("dropped: one")
        here.type("\x1b")
        await here.terminal.shows("1 or y: Allow")
        here.type("y")
        await here.terminal.shows("* 1 or y: Allow")
        assert here.bridge.answered == []
        here.type("\x7f\t")
        await here.terminal.shows("* 2 waits")
        here.type("\x1by")
        await here.terminal.shows("* 1 or y: Allow")
        await here.terminal.hides("* 2 waits")
        here.type("\r")
        await here.terminal.shows("Allow: rm -r /")


async def test_while_a_waiting_prompt_is_edited_keys_are_text(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        here.tell(*THREE)
        await here.terminal.shows("1 waits")
        here.type("\te")
        await here.terminal.shows("» one")
        here.running.ask()
        await here.terminal.shows("Alt-1 or Alt-y: Allow")
        here.running.now += 1
        here.type("\x15y")
        await here.terminal.shows("» y")
        await here.terminal.shows("  Alt-1 or Alt-y: Allow")
        assert here.bridge.answered == []


async def test_up_still_takes_back_the_last_own_prompt_in_the_order_of_the_queue(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as here:
        await here.own(1, "first")
        await here.own(2, "second")
        here.tell(row(2, "second", mine=True), row(1, "first", mine=True), row(3, "theirs"))
        await here.terminal.shows("2 waits: second\n  1 waits: first\n")
        here.type(UP)
        await here.terminal.shows("» first\n")


async def test_up_takes_back_the_words_that_another_client_has_given_the_prompt(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as here:
        await here.own(1, "mine")
        here.tell(row(1, "mine", mine=True))
        await here.terminal.shows("1 waits: mine")
        here.tell(row(1, "better", mine=True))
        await here.terminal.shows("1 waits: better")
        await here.bridge.asked("_acp_bridge/queue/list")
        await settled(here.bridge)
        here.type(UP)
        await here.terminal.shows("» better\n")


async def test_a_bridge_that_does_not_tell_what_waits_has_no_list(tmp_path: Path) -> None:
    async with queue(tmp_path) as here:
        await here.running.prompt("mine")
        await here.terminal.shows("  waits: mine\n")
        here.type("\te\r")
        await here.running.prompted("e")
        assert "Tab: queue" not in here.terminal.everything


# --- one who only looks on, and what the transcript shows


async def test_words_that_were_edited_are_shown_once_when_they_run(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running", prompt="theirs")
        await settled(bridge)
        talk.enter("mine")
        call = await bridge.asked("session/prompt")
        bridge.peer.notify("_acp_bridge/accepted", {"requestId": call.id, "promptId": "p1"})
        bridge.say(SESSION, "better", "user_message_chunk")
        turn = {"promptId": "p1", "mine": True, "text": "better", "edited": True}
        told(bridge, "running", turn=turn)
        bridge.say(SESSION, "well")
        bridge.peer.answer(call.id, {"stopReason": "end_turn"})
        told(bridge, "idle")
        await settled(bridge)
        assert texts(talk) == ["better", "well"]


async def test_a_prompt_that_another_client_drops_is_told_as_not_run(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running", prompt="theirs")
        bridge.peer.notify("_acp_bridge/queue", {"prompts": []})
        await settled(bridge)
        talk.enter("mine")
        call = await bridge.asked("session/prompt")
        bridge.peer.answer(call.id, {"stopReason": "cancelled"})
        await settled(bridge)
        assert texts(talk) == ["not run: mine"]


async def test_the_end_of_the_connection_ends_changes_that_wait(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        bridge.peer.notify("_acp_bridge/queue", {"prompts": THREE})
        await settled(bridge)
        talk.queue.enter()
        talk.changes.drop()
        talk.changes.move(1)
        await bridge.asked("_acp_bridge/queue/drop")
        talk.end()
    assert [call.method for call in bridge.calls] == ["_acp_bridge/queue/drop"]


async def test_one_who_looks_on_sees_the_list_and_can_not_go_into_it(tmp_path: Path) -> None:
    async with queue(tmp_path, read_only=True) as here:
        here.tell(*THREE)
        await here.terminal.shows("  3 waits, another's: three\n")
        here.type("\td")
        with anyio.fail_after(5):
            await here.terminal.shows("» d")
        assert "Tab: queue" not in here.terminal.screen
        assert here.asked("drop") == []
