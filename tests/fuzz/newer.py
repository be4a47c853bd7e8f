"""Clients of version 2 that act: they prompt, stop, withdraw, come, leave and send again.

Their decisions come from a stream of the seed's own, and their prompts have numbers of their own:
what the others do in a seed is as it would be without them, but for what the bridge makes of it.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from tests.crash.told import Lost
from tests.fuzz import script
from tests.fuzz.fleet import Fleet
from tests.fuzz.heard import Heard
from tests.fuzz.life import SETTLE, Life
from tests.fuzz.owned import Owned
from tests.fuzz.prompts import NEWER, Guest, Prompt, key
from tests.support.client import RecordingClient
from tests.support.joined import joined, listening
from tests.support.recording import Message

#: such clients that there are at the same time.
_MOST: Final = 2
#: what one does, and how often, in parts of the sum.
_ACTS: Final = {
    "prompt": 12,
    "again": 4,
    "cancel": 4,
    "hurry": 3,
    "cancel_request": 4,
    "resume": 3,
    "close": 2,
    "answers": 2,
}


@dataclass
class Actor:
    """One such client, from its coming to the end of its connection."""

    connection: Owned[RecordingClient]
    life: Life
    heard: Heard
    #: the sessions that it has asked for, and not left.
    opened: set[str] = field(default_factory=set)

    @property
    def client(self) -> RecordingClient:
        return self.connection.value

    def ask(self, method: str, params: Message) -> Any:
        """Return the id of a request; None if nobody takes it any more."""
        with suppress(BrokenPipeError):
            return self.client.send_request(method, params)

    def notify(self, method: str, params: Message) -> None:
        with suppress(BrokenPipeError):
            self.client.notify(method, params)

    async def answered(self, request: Any, within: float) -> None:
        with suppress(TimeoutError, ConnectionError):
            if request is not None:
                await self.client.answer_to(request, within)


@dataclass
class Actors:
    """They come and go while a run goes on."""

    fleet: Fleet
    here: list[Actor] = field(default_factory=list)
    #: prompts that were sent under keys, by anybody.
    keyed: list[Prompt] = field(default_factory=list)

    async def step(self, rng: random.Random) -> None:
        """One comes, one goes, or one does something."""
        for actor in list(self.here):
            if actor.client.closed.is_set():
                await self._leave(actor)
        if not self.here or (len(self.here) < _MOST and rng.random() < 0.15):
            await self._join(rng)
        known = self.fleet.operations.known
        if not self.here or not known:
            return
        actor = rng.choice(self.here)
        if rng.random() < 0.04:
            await self._leave(actor)
            return
        (act,) = rng.choices(list(_ACTS), list(_ACTS.values()))
        session = known[0] if rng.random() < 0.7 else rng.choice(known)
        await getattr(self, f"_{act}")(actor, session, rng)
        self._count(act)

    def _count(self, what: str) -> None:
        self.fleet.place.ledger.counts[f"version 2: {what}"] += 1

    async def _join(self, rng: random.Random) -> None:
        life, place = rng.choice(self.fleet.all), self.fleet.place
        if (pid := life.pid()) is None:
            return
        own: Message = {"accepted": True, **({"state": True} if rng.random() < 0.3 else {})}
        with suppress(TimeoutError, OSError):  # it does not listen yet, or has ended
            bridge = await listening(place.home, pid, within=1)
            connection = await Owned.open(place.tasks, joined(bridge.socket))
            guest = Guest(self.fleet.next_guest(), life.number, time.monotonic())
            heard = Heard(place.ledger, guest, connection.value.recording)
            actor = Actor(connection, life, heard)
            hello = {"name": "actor", "version": "1"}
            able = {"_meta": {"acp_bridge": own}}
            actor.ask("initialize", {"protocolVersion": 2, "info": hello, "capabilities": able})
            self.here.append(actor)
            place.recordings.append(actor.client.recording)
            self._count("came")

    async def _leave(self, actor: Actor) -> None:
        self.here.remove(actor)
        await actor.connection.close()
        actor.heard.judge()

    # --- what they do --------------------------------------------------------------------------

    def _come(self, actor: Actor, session: str, rng: random.Random) -> Any:
        params: Message = {"sessionId": session, "cwd": self.fleet.place.cwd}
        if rng.random() < 0.6:
            params["replayFrom"] = {"type": "start"}
        actor.opened.add(session)
        return actor.ask("session/resume", params)

    async def _resume(self, actor: Actor, session: str, rng: random.Random) -> None:
        self._come(actor, session, rng)

    async def _come_first(self, actor: Actor, session: str, rng: random.Random) -> None:
        if session not in actor.opened:
            request = self._come(actor, session, rng)
            if rng.random() < 0.8:
                await actor.answered(request, 2)

    async def _prompt(self, actor: Actor, session: str, rng: random.Random) -> None:
        await self._come_first(actor, session, rng)
        ledger = self.fleet.place.ledger
        number = NEWER + len(ledger.newer)
        text, words = script.prompt_text(rng, number)
        era = len(ledger.turns)
        who, urgent = actor.heard.who.number, "interrupt" in self.fleet.place.options
        if urgent:
            ledger.stop(actor.life.number, session)
        prompt = Prompt(number, session, actor.life.number, text, words, urgent, who, era)
        ledger.newer[number] = prompt
        if rng.random() < 0.6:
            self.keyed.append(prompt)
            self._send(actor, prompt, idempotencyKey=f"key {number}")
        else:
            self._send(actor, prompt)

    async def _again(self, actor: Actor, session: str, rng: random.Random) -> None:
        """Send one of the last prompts that had keys; it may have ended, wait or be left over."""
        if not self.keyed:
            return
        prompt = rng.choice(self.keyed[-6:])
        await self._come_first(actor, prompt.session_id, rng)
        prompt.send_again()
        if "interrupt" in self.fleet.place.options:
            self.fleet.place.ledger.stop(actor.life.number, prompt.session_id)
        prompt.life = actor.life.number
        self._send(actor, prompt, idempotencyKey=f"key {prompt.number}")

    def _send(self, actor: Actor, prompt: Prompt, **more: str) -> None:
        block = {"type": "text", "text": prompt.text}
        params = {"sessionId": prompt.session_id, "prompt": [block], **more}
        request = actor.ask("session/prompt", params)
        if request is not None:
            actor.heard.prompts[key(request)] = prompt

    async def _cancel(self, actor: Actor, session: str, rng: random.Random) -> None:
        self._stops(actor, session)
        actor.notify("session/cancel", {"sessionId": session})

    async def _hurry(self, actor: Actor, session: str, rng: random.Random) -> None:
        """Some prompts at once, a Stop behind them, and what shows that the Stop was read."""
        for _ in range(rng.choice([2, 2, 3])):
            await self._prompt(actor, session, rng)
        await self._cancel(actor, session, rng)
        self._come(actor, session, rng)

    def _stops(self, actor: Actor, session: str) -> None:
        ledger, own = self.fleet.place.ledger, set(map(id, actor.heard.prompts.values()))
        ledger.stop(actor.life.number, session, actor.heard.who.number)
        for prompt in ledger.newer.values():
            prompt.own_stop |= prompt.session_id == session and id(prompt) in own

    async def _cancel_request(self, actor: Actor, session: str, rng: random.Random) -> None:
        """Of a prompt that perhaps waits; of one that was answered it does nothing."""
        if actor.heard.prompts:
            request = rng.choice(list(actor.heard.prompts)[-4:])
            self._give_up(actor, request)

    def _give_up(self, actor: Actor, request: str) -> None:
        prompt = actor.heard.prompts[request]
        prompt.stoppable = True
        actor.notify("$/cancel_request", {"requestId": int(request)})

    async def _close(self, actor: Actor, session: str, rng: random.Random) -> None:
        self.fleet.place.ledger.stop(actor.life.number, session)
        actor.opened.discard(session)
        actor.ask("session/close", {"sessionId": session})
        if rng.random() < 0.5:
            self._come(actor, session, rng)

    async def _answers(self, actor: Actor, session: str, rng: random.Random) -> None:
        """From now on it answers questions so."""
        actor.client.side.permission = rng.choice(["allow", "reject", "cancel"])

    # --- the end -------------------------------------------------------------------------------

    async def leave(self) -> None:
        """All that they asked is answered, every turn that began has ended, and they go.

        Raises Lost.
        """
        for actor in list(self.here):
            if "never-reads-stdin" in self.fleet.place.behaviours:
                for session in actor.opened:
                    self.fleet.place.ledger.stop(actor.life.number, session)
                    actor.ask("_acp_bridge/close", {"sessionId": session})
            for session in actor.opened:  # perhaps nobody else has it, and it is on hold
                actor.ask("_acp_bridge/go", {"sessionId": session})
            for request, prompt in actor.heard.prompts.items():
                if prompt.again:  # it may be left over, and its request open for good
                    self._give_up(actor, request)
            await self._all_over(actor)
            await self._leave(actor)

    async def _all_over(self, actor: Actor) -> None:
        actor.heard.is_over()  # to judge all until now takes long, and is no time of the bridge
        try:
            with anyio.fail_after(SETTLE), suppress(ConnectionError):
                await actor.client.until_recorded(actor.heard.is_over, SETTLE + 1)
        except TimeoutError:
            left = actor.heard.open_requests()
            raise Lost(f"a client of version 2 waits for {left} after {SETTLE} s") from None
