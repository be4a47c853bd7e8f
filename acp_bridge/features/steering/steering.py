"""Steering: the user's words join the turn that runs, where the agent can take them.

- The words are a prompt like any other until they are sent: on disk first, with the hooks about it.
- The machine says when they are sent, and what becomes of them with the turn's end. What an agent
  may have read is never sent again. (invariant Q15)
- An agent is asked for `promptRequired` if its turn is over, so that it begins none of its own.
- Who asked by `_session/steering` is answered in that method's words; who sent a prompt with
  `delivery: "steer"` is answered with the turn's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import DatabaseAway, JournalError
from acp_bridge.core.machine import effects as ef
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.events import Steered
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import (
    CAN_STEER,
    PROMPT_REQUIRED,
    STEERING,
    ErrorCode,
    Json,
    as_object,
    not_feedback,
    without_key,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import SessionState
from acp_bridge.core.session.feature import Command, Feature, Parts, Plugin
from acp_bridge.core.session.prompts import answers
from acp_bridge.core.session.prompts.prompts import Prompt
from acp_bridge.core.session.prompts.turn import Unsent
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.notices import NOTHING_RUNS, beginning
from acp_bridge.core.updates.wording import words
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok

#: errors with which an agent has nothing of a request.
_REFUSALS: Final = (
    ErrorCode.METHOD_NOT_FOUND,
    ErrorCode.INVALID_PARAMS,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.RESOURCE_NOT_FOUND,
)


class Steering(Feature):
    """Carries the words of one session's users into the turn that runs."""

    words = ("steer NUMBER",)

    def __init__(self, session: Parts) -> None:
        """No words have joined a turn yet."""
        self._session = session
        self._unread = session.unread
        self._core = session.core
        self._journal = session.journal
        self._transcript = session.transcript
        self._prompts = session.prompts
        #: words have joined the turn, and the agent has shown nothing since.
        self._listens = False
        self.takes = {STEERING: self._ask_to_join}
        self.effects = {
            ef.Steer: self._send,
            ef.Queued: self._say_queued,
            ef.GiveBack: self._give_back,
        }

    # --- asked by `_session/steering` ----------------------------------------------------------

    def _ask_to_join(self, request: ClientRequest, params: Json) -> None:
        """Take words for the turn that runs; `params` has been checked, but for `_meta`.

        Raises RpcError for an `idleBehavior` that is not known.
        """
        asked = as_object(as_object(params.get("_meta")).get("steering")).get("idleBehavior")
        if asked not in (None, PROMPT_REQUIRED):
            raise errors.invalid(f"must be {PROMPT_REQUIRED!r}", "_meta.steering.idleBehavior")
        only_running = asked == PROMPT_REQUIRED
        if only_running and self._core.now.state is not State.RUNNING:
            request.answer(answers.NO_TURN)
            return
        key = self._prompts.add(without_key(not_feedback(params)), None, steering=request)
        self._core.feed(ev.PromptReceived(key, steers=True, lapses=only_running))

    def _say_queued(self, effect: ef.Queued) -> None:
        """Answer the `_session/steering` of a prompt: its words wait for a turn of their own."""
        told = answers.of_steering("startedNewTurn", "queued")
        self._answer(self._prompts.get(effect.key), told)

    def _answer(self, prompt: Prompt, answer: Answer) -> None:
        request, prompt.steering = prompt.steering, None
        if request:
            self._transcript.then(request.client, lambda: request.respond(answer))

    # --- asked by `/queue steer NUMBER` -------------------------------------------------------

    def take_command(self, command: Command) -> bool:
        """Let a prompt that waits join the turn that runs, or run next."""
        match command.words:
            case ["steer", *rest]:
                command.show()
                command.end(self._steer(rest, command.usage))
                return True
        return False

    def _steer(self, words: list[str], usage: str) -> str:
        if self._core.now.running is None:
            return NOTHING_RUNS
        number = words[0] if len(words) == 1 else ""
        key = self._prompts.with_number(number, self._core.now.waiting)
        if key is None:
            return no_such_waiting(words, usage)
        prompt = self._prompts.get(key)
        if prompt.client is None:  # it was left over, or is a hook's feedback
            return no_such_waiting(words, usage)
        prompt.delivery = "queued"
        self._core.feed(ev.SteerWaiting(key))
        return steers(prompt.params["prompt"], now=self._session.steers)

    # --- at the agent --------------------------------------------------------------------------

    def _send(self, effect: ef.Steer) -> None:
        """Give the agent the words of a prompt; its answer becomes `SteerAnswered`."""
        link, key = self._session.link_of(effect.epoch), effect.key
        prompt = self._prompts.get(key)
        self._transcript.flush()
        turn = self._transcript.seq
        try:
            self._journal.start_steering(prompt.seq, turn)
        except JournalError as exc:
            self._not_noted(key, exc)
            return
        late, refused = self._journal.in_flight, partial(self._not_noted_late, turn)
        unsent = Unsent(self._journal, key, refused) if late else None
        blocks = self._session.join_turn(key)
        if unsent is None:
            self._ask(link, key, blocks)
        else:
            unsent.send(partial(self._send_late, link, key, blocks))

    def _not_noted(self, key: int, why: JournalError) -> None:
        event("journal.failed", session=self._core.id, what=why)
        self._core.feed(ev.SteerAnswered(key, Steered.NOT_TAKEN))

    def _not_noted_late(self, turn: int, key: int, why: JournalError) -> None:
        """Let words wait again whose note the journal did not take, and which the turn shows.

        The database, if it is away, has perhaps taken the note after all.
        """
        prompt = self._prompts.find(key)
        if prompt and isinstance(why, DatabaseAway):
            self._prompts.put_off(prompt, turn)
        self._not_noted(key, why)

    def _send_late(self, link: Link, key: int, blocks: list[Json]) -> None:
        """Send words whose note is made now, unless the turn is over, or was stopped, already."""
        if link.gone or self._core.now.state is not State.RUNNING:
            self._answered(key, Steered.NOT_TAKEN)
        else:
            self._core.finish(ef.Steer(link.epoch, key), partial(self._ask, link, key, blocks))

    def _ask(self, link: Link, key: int, blocks: list[Json]) -> None:
        prompt = self._prompts.get(key)
        event("turn.steered", session=self._core.id, turn=prompt.seq, agent=link.name)
        params: Json = {"sessionId": link.agent_session_id, "prompt": blocks}
        params["_meta"] = {"steering": {"idleBehavior": PROMPT_REQUIRED}}
        answered = anyio.Event()

        def on_answer(answer: Answer) -> None:
            if not answered.is_set():
                answered.set()
                self._answered(key, Steered.UNKNOWN if link.gone else _how(answer))

        link.request_for(prompt.request or prompt.steering, STEERING, params, on_answer)
        if not answered.is_set():
            self._core.spawn(self._end_silence, answered, on_answer)

    async def _end_silence(
        self, answered: anyio.Event, on_answer: Callable[[Answer], None]
    ) -> None:
        """Go on without the agent's answer if it doesn't come in time.

        While the process is not read, since a client doesn't read, no answer can come.
        """
        unread = True
        while unread and not answered.is_set():
            unread = self._unread()
            with anyio.move_on_after(waits.AGENT_PATIENCE):
                await answered.wait()
            unread |= self._unread()
        on_answer(Err(errors.silent(STEERING, waits.AGENT_PATIENCE)))

    def _answered(self, key: int, how: Steered) -> None:
        prompt = self._prompts.find(key)
        if prompt is None:  # the turn is over, and it was answered
            return
        if how is Steered.NOT_TAKEN:
            self._prompts.not_sent(prompt)
        elif self._core.now.running is not None and (
            how is Steered.JOINED or not self._core.now.stopped
        ):
            if not self._listens:
                self._listens = True
                self._session.when_shown(self._note_shown)
            prompt.delivery = "steered"
        if how is Steered.JOINED:
            self._answer(prompt, answers.of_steering("injected", "steered"))
        elif how is Steered.UNKNOWN:
            unsaid = errors.agent_trouble("the agent has not said whether it took the words")
            self._answer(prompt, Err(unsaid))
        self._core.feed(ev.SteerAnswered(key, how))

    def _note_shown(self, epoch: int) -> None:
        """Note that the agent has shown something of the turn since words joined it."""
        self._listens = False
        self._core.feed(ev.WordsFollowed(epoch))

    # --- what did not join ---------------------------------------------------------------------

    def _give_back(self, effect: ef.GiveBack) -> None:
        """Show, in a notice, the words of a prompt that was to join a turn that is stopped."""
        prompt = self._prompts.get(effect.key)
        self._transcript.notice(given_back(prompt.params["prompt"]))


class Joining(Steering):
    """Steering for an agent that takes words into a turn."""

    #: what the machine was told last: the process that takes words now, or 0.
    _told = 0

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Tell the machine if the process takes words into a turn: not while a person is asked."""
        epoch = after.turns.epoch
        takes = 0 if after.around.asked else epoch
        if takes != self._told:
            self._told = takes
            self._core.feed(ev.MaySteer(epoch, bool(takes)))


def _how(answer: Answer) -> Steered:
    """Return what an agent's answer says that it made of the words."""
    match answer:
        case Ok({"outcome": "injected" | "startedNewTurn"}):
            return Steered.JOINED
        case Ok({"outcome": "promptRequired" | "failed"}):
            return Steered.NOT_TAKEN
        case Err(error) if error.code in _REFUSALS:
            return Steered.NOT_TAKEN
        case _:
            return Steered.UNKNOWN


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what carries words into the turns of a session."""
    return [Joining(session) if session.steers else Steering(session)]


def announce(agent: Json, told: Json) -> None:
    """Add to the answer to `initialize` that the bridge takes words for the turn that runs."""
    told["_meta"] = {**told["_meta"], **CAN_STEER}


PLUGIN: Final = Plugin(made_for, announce=announce)


# --- the sentences --------------------------------------------------------------------------------


def given_back(prompt: list[Any]) -> str:
    """Return the notice that a turn was stopped before the agent took these words into it."""
    return f"[acp-bridge] Stopped before the agent took these words: {beginning(prompt)}"


def steers(prompt: list[Any], *, now: bool) -> str:
    """Return the answer to `/queue steer`; `now`: the agent takes words into the turn that runs."""
    what = "joins the turn that runs" if now else "is the next to run: this agent takes no words in"
    return f"{beginning(prompt)} {what}."


def no_such_waiting(given: list[str], usage: str) -> str:
    """Return the answer to `/queue steer` with words that are no waiting prompt's number."""
    return f"No prompt {words(repr(' '.join(given)))} waits that could join the turn. {usage}"
