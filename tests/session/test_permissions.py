"""Permissions that hooks decide about: what becomes of them when nobody waits any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acp_bridge.protocol import REQUEST_PERMISSION, Json
from acp_bridge.session.clients.permissions import Permissions
from acp_bridge.session.clients.to_client import ToClient
from acp_bridge.session.prompts.hooks import Decision
from acp_bridge.updates.updates import Updates
from tests.session.hooked import CALL, OPTIONS
from tests.session.memory import NO_RULES, ClientEnd, MemoryLink


class PlayedHooks:
    """Hooks that the test plays."""

    decide_permissions = True

    def __init__(self) -> None:
        self.then: Callable[[Decision | None], None] = lambda decision: None
        self.stopped = 0
        self.told: list[tuple[str, str]] = []

    def decide(
        self, call: Json, kinds: frozenset[str], then: Callable[[Decision | None], None]
    ) -> Callable[[], None]:
        self.then = then
        return self.stop

    def refuse(self, judge: object, about: str, then: object) -> Callable[[], None]:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopped += 1

    def tell_allowed(self, about: str) -> None:
        self.told.append(("allowed", about))

    def waits_for_user(self, kind: str, message: str) -> None:
        self.told.append((kind, message))


class Stage:
    """A session's way to its client, with an agent that has asked for a permission."""

    def __init__(self) -> None:
        self.hooks, self.client, self.link = PlayedHooks(), ClientEnd(), MemoryLink()
        self.shown: list[Json] = []
        updates = Updates(set())
        permissions = Permissions(self.hooks, NO_RULES, updates, self.shown.append)
        way = ToClient("s", lambda: self.client.client, updates, permissions=permissions)
        params = {"sessionId": "0", "toolCall": CALL, "options": OPTIONS}
        call = self.link.asks(REQUEST_PERMISSION, params, "p")
        assert not way.forward(self.link, call, stopped=False)


@pytest.mark.hazard("C15")
async def test_the_end_of_the_turn_stops_them_and_what_they_say_later_is_nobodys() -> None:
    stage = Stage()
    stage.link.at_clients.end_questions()
    assert stage.hooks.stopped == 1
    (answer,) = stage.link.sent.take()
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
    stage.hooks.then(Decision("allow", "hook"))
    assert stage.link.sent.take() == []
    assert stage.client.sent.take() == []


async def test_the_death_of_the_process_stops_them_and_nobody_is_answered() -> None:
    stage = Stage()
    stage.link.at_clients.release()
    assert stage.hooks.stopped == 1
    stage.hooks.then(None)
    assert stage.link.sent.take() == []


async def test_an_agent_that_takes_its_request_back_is_answered_when_they_have_ended() -> None:
    stage = Stage()
    stage.link.at_clients.take_back("p")
    assert stage.hooks.stopped == 1
    assert stage.link.sent.take() == []
    stage.hooks.then(None)
    (answer,) = stage.link.sent.take()
    assert answer["error"]["code"] == -32800


async def test_the_client_is_asked_when_they_leave_it_to_the_person_who_is_told_then() -> None:
    stage = Stage()
    assert stage.hooks.told == []
    stage.hooks.then(Decision("ask"))
    (request,) = stage.client.sent.take()
    assert request["method"] == REQUEST_PERMISSION
    assert stage.hooks.told == [("permission_prompt", "rm -r build: command: x")]
    assert stage.shown == []
