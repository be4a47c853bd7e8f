"""The feed: every event shown once, whichever way it comes; the state as it is told live."""

import random
from typing import Any

import pytest

from agent.client import Update
from agent.openhands.events import Json, Part, Status, read
from agent.openhands.feed import Feed, usage_update
from tests.agent.openhands import events as told


class Watched:
    """A feed and what it has shown."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.shown: list[Update] = []

    def live(self, *raws: Json) -> "Watched":
        for raw in raws:
            self.shown += self.feed.live(told.event(raw)).updates
        return self

    def stored(self, *raws: Json, replay: bool = False) -> "Watched":
        for raw in raws:
            self.shown += self.feed.stored(told.event(raw), replay=replay).updates
        return self

    def texts(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u["content"]["text"] for u in self.shown if u["sessionUpdate"] == kind)

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.shown]


TURN = [
    told.user("hello", "u1"),
    told.field("last_user_message_id", "u1"),
    told.status("running"),
    told.action("a1", command="ls", said="I look."),
    told.result("a1", "a file"),
    told.agent("There is a file.", "m1"),
    told.status("finished"),
]


def test_events_come_live_and_stored_in_any_mixture_and_are_shown_once() -> None:
    chosen = random.Random(1)
    for _ in range(50):
        watched = Watched()
        cut = chosen.randint(0, len(TURN))
        back = chosen.randint(0, cut)
        watched.live(*TURN[:cut])
        watched.stored(*TURN)
        watched.live(*TURN[back:])
        assert watched.texts() == "I look.There is a file."
        assert watched.kinds().count("tool_call") == watched.kinds().count("tool_call_update") == 1


def test_deltas_are_shown_as_they_come_and_the_message_only_adds_what_is_missing() -> None:
    watched = Watched().live(told.status("running"))
    watched.live(told.delta("A0 "), told.delta("A1 "), told.agent("A0 A1 A2 ", "m1"))
    assert watched.texts() == "A0 A1 A2 "
    assert len({update["messageId"] for update in watched.shown}) == 1


def test_a_pause_does_not_part_a_message_from_its_deltas() -> None:
    watched = Watched().live(told.status("running"), told.delta("A0 "), told.status("paused"))
    watched.live(told.raw("PauseEvent", source="user"), told.delta("A1 "), told.agent("A0 A1 "))
    assert watched.texts() == "A0 A1 "


def test_what_was_streamed_before_an_interrupt_is_of_no_later_message() -> None:
    watched = Watched().live(told.status("running"), told.delta("A0 "), told.status("paused"))
    watched.live(told.raw("InterruptEvent", source="user"), told.status("running"))
    watched.live(told.agent("A0 A1 ", "m2"))
    assert watched.texts() == "A0 A0 A1 "


def test_a_message_that_the_log_tells_first_is_not_shown_again_by_its_late_deltas() -> None:
    """The log is read while the live feed still has the deltas of the same message."""
    watched = Watched().live(told.status("running"), told.delta("A0 "))
    watched.stored(told.agent("A0 A1 A2 ", "m1"))
    watched.live(told.delta("A1 "), told.delta("A2 "), told.agent("A0 A1 A2 ", "m1"))
    watched.live(told.delta("B0 "))
    assert watched.texts() == "A0 A1 A2 B0 "


def test_after_a_cut_no_delta_is_shown_before_the_message_is_whole() -> None:
    watched = Watched().live(told.status("running"), told.delta("A0 "))
    watched.feed.cut()
    watched.live(told.snapshot("running"), told.delta("A2 "), told.agent("A0 A1 A2 ", "m1"))
    assert watched.texts() == "A0 A1 A2 "


def test_a_stored_status_tells_the_past_and_changes_no_state() -> None:
    watched = Watched().live(told.snapshot("finished", message="u9"))
    watched.stored(told.status("running"), told.field("last_user_message_id", "u1"))
    assert watched.feed.status is Status.FINISHED
    assert watched.feed.state["last_user_message_id"] == "u9"


def test_the_state_is_the_last_snapshot_with_the_fields_that_came_after_it() -> None:
    watched = Watched().live(told.snapshot("finished", message="u1"), told.status("running"))
    assert watched.feed.status == "running"
    watched.live(told.snapshot("paused", message="u2"))
    assert watched.feed.status == "paused"
    assert watched.feed.state["last_user_message_id"] == "u2"


def test_a_field_that_the_log_told_before_still_changes_the_state_when_it_comes_live() -> None:
    running = told.status("running")
    watched = Watched().stored(running).live(told.snapshot("idle"), running)
    assert watched.feed.status is Status.RUNNING


def test_the_user_s_own_message_is_not_shown_and_another_client_s_is() -> None:
    watched = Watched()
    watched.feed.expect((Part("mine"),))
    taken = watched.feed.live(told.event(told.user("mine", "u1")))
    assert (taken.ours, taken.updates) == (True, ())
    again = watched.feed.live(told.event(told.user("mine", "u2")))
    assert not again.ours
    assert [update["content"]["text"] for update in again.updates] == ["mine"]


def test_a_replay_shows_what_the_user_said_too() -> None:
    watched = Watched().stored(*TURN, replay=True)
    assert watched.texts("user_message_chunk") == "hello"
    assert watched.kinds()[0] == "user_message_chunk"


def test_images_of_a_message_are_shown_as_images() -> None:
    message = told.user("look", "u1")
    content = message["llm_message"]["content"]
    content.append({"type": "image", "image_urls": ["data:image/png;base64,AAAA", "https://x/y"]})
    watched = Watched().stored(message, replay=True)
    assert [update["content"] for update in watched.shown] == [
        {"type": "text", "text": "look"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "text", "text": "https://x/y"},
    ]


def test_words_of_calls_without_a_card_are_words() -> None:
    watched = Watched()
    watched.stored(told.action("t1", "ThinkAction", tool="think", thought="hm"))
    watched.stored(told.result("t1", "Your thought has been logged."))
    watched.stored(told.action("f1", "FinishAction", tool="finish", message="All done."))
    watched.stored(told.result("f1", "All done."))
    assert (watched.texts("agent_thought_chunk"), watched.texts()) == ("hm", "All done.")
    assert "tool_call" not in watched.kinds()


def test_the_window_and_the_cost_are_told_when_they_change_and_where_they_are_known() -> None:
    def stats(window: int, used: int) -> Json:
        tokens = {"context_window": window, "per_turn_token": used}
        usage = {"accumulated_cost": 0.5, "accumulated_token_usage": tokens}
        return {"usage_to_metrics": {"default": usage, "other": {"accumulated_cost": 0.25}}}

    watched = Watched().live(told.field("stats", stats(1000, 10)), told.field("stats", stats(0, 1)))
    watched.live(told.field("stats", stats(1000, 10)))
    cost = {"amount": 0.75, "currency": "USD"}
    assert watched.shown == [
        {"sessionUpdate": "usage_update", "used": 10, "size": 1000, "cost": cost}
    ]
    assert usage_update(None) is usage_update({"usage_to_metrics": []}) is None


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "text",
        {},
        {"id": 1, "kind": "MessageEvent"},
        {"id": "", "kind": "MessageEvent"},
    ],
)
def test_what_has_no_id_is_no_event(raw: Any) -> None:
    assert read(raw) is None


@pytest.mark.parametrize(
    "kind",
    [
        "MessageEvent",
        "StreamingDeltaEvent",
        "ActionEvent",
        "ObservationEvent",
        "AgentErrorEvent",
        "UserRejectObservation",
        "ACPToolCallEvent",
        "ConversationStateUpdateEvent",
        "ConversationErrorEvent",
        "PauseEvent",
        "Condensation",
        "SomethingNew",
        None,
    ],
)
@pytest.mark.parametrize("junk", [None, 7, "text", [], [None], {"content": 3}])
def test_whatever_an_event_holds_nothing_is_raised(kind: str | None, junk: Any) -> None:
    members = ("llm_message", "thought", "action", "tool_call", "observation", "value", "content")
    names = ("key", "code", "detail", "tool_call_id", "action_id", "error", "title", "status")
    raw = {"id": "e", "kind": kind, **dict.fromkeys((*members, *names), junk)}
    event = read(raw)
    assert event is not None
    Feed().live(event)
    Feed().stored(event, replay=True)
