"""The seam between a session and what it can do beyond core.

A feature is a subclass of `Feature` in its own folder, whose `PLUGIN` says how core gets it.
`acp_bridge/serving.py` lists all plugins. Core knows none of them.

Invariants
- A session calls a feature only at the moments that its class overrides. `Features` makes a table
  for each moment once, so a feature that is off costs nothing.
- The session calls the features that were found for it, then the others, in the order in which
  `serving.py` names their plugins.
- If a feature raises, the session logs the error and goes on without that feature. `take_words` is
  the exception: it may refuse, so if it raises, the words are refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar
from uuid import uuid4

from msgspec import Struct

from acp_bridge.core import errors
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.journal import Journal, SessionJournal
from acp_bridge.core.machine.effects import Effect, Outcome
from acp_bridge.core.machine.events import Moment
from acp_bridge.core.protocol import Json, user_chunk, with_own_meta
from acp_bridge.core.session.core import Core, Follower, SessionState
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.requests.to_agent import ToAgent
from acp_bridge.core.session.requests.user_settings import UserSettings
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import Answer

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
#: answers a client's request in a task of its own; raises RpcError.
Answers: TypeAlias = Callable[[ClientRequest, Json], Awaitable[Any]]
#: answers a client's request about a session that is not open, of which it gets the journal and the
#: rows of all sessions; raises RpcError, JournalError.
AnswersClosed: TypeAlias = Callable[[SessionJournal, Journal, Json], Awaitable[Json]]
#: takes a client's request at once, and answers it later; raises RpcError.
Takes: TypeAlias = Callable[[ClientRequest, Json], None]
#: is told a decision, or None if the question was taken back.
Then: TypeAlias = "Callable[[Decision | None], None]"


class Command(Struct, frozen=True):
    """A prompt that is `/queue`, with the words behind that."""

    request: ClientRequest
    params: Json
    words: list[str]
    #: the sentence that lists the words of the command.
    usage: str
    transcript: TranscriptOut

    @property
    def text(self) -> str:
        """The prompt as one that begins with `/queue`, with the white space in it."""
        text: str = self.params["prompt"][0]["text"]
        return re.sub(r"^\s*/(?:acp-)?bridge\s+queue", "/queue", text).strip()

    def show(self) -> None:
        """Record the words as the user's, and show them to the other clients."""
        for block in self.params["prompt"]:
            # Its own message: it may be typed right behind the prompt of the turn that runs.
            said = {**user_chunk(block), "messageId": f"acp-bridge-{uuid4().hex[:12]}"}
            self.transcript.record_said(
                self.request.client, with_own_meta({"update": said}, {"command": True})
            )

    def end(self, said: str | None = None) -> None:
        """Answer the prompt, after a notice that says `said`."""
        if said is not None:
            self.transcript.notice(said)
        done = {"stopReason": "end_turn"}
        self.transcript.then(self.request.client, lambda: self.request.answer(done))


class Feature:
    """What one session can do beyond core: override the moments at which the feature acts."""

    #: the kinds of the agent's states (`protocol.ASIDE`) that `note_state` gets.
    states: frozenset[str] = frozenset()
    #: by method, what answers a client's request about the session.
    answers: Mapping[str, Answers] = {}
    #: by method, what takes a client's request about the session.
    takes: Mapping[str, Takes] = {}
    #: the words that this feature adds to `/queue`, as its usage lists them.
    words: tuple[str, ...] = ()
    #: by its type, what carries out an effect of the machine. Each effect has one owner.
    effects: Mapping[type[Effect], Callable[[Any], None]] = {}

    def begin(self, source: str) -> None:
        """Act when the session is there: "startup", "resume" or "fork"."""

    def take_notices(self) -> list[str]:
        """Return notices to be shown beside a prompt that the agent gets, each once."""
        return []

    def add_words(self, key: int) -> str:
        """Return what the agent is told with the prompt `key` beside its words, once."""
        return ""

    def note_death(self, how: object) -> None:
        """Act after the agent's process died. `how`: an `Exit`, if that is known."""

    def take_command(self, command: Command) -> bool:
        """Carry out words of `/queue`. Return False if they are not this feature's."""
        return False

    def note_prompt(self, params: Json) -> bool:
        """Act after the session took a prompt. It may have been refused by the machine.

        Return True if the feature has put the session into the listing by that.
        """
        return False

    def note_stop(self, client: Client) -> None:
        """Act on the Stop of a client's user, before it reaches any turn."""

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Cancel a client's request that this feature answers. Return False if it is not one."""
        return False

    def keeps_awake(self) -> bool:
        """Return True while the agent's process may not be ended for rest."""
        return False

    def begin_close(self) -> None:
        """Act when somebody closes the session, before its turns are cancelled."""

    def take_words(self) -> None:
        """Act before the session takes a prompt, or words for the running turn.

        If this raises, the session refuses them.
        """

    def begin_turn(self, link: Link, seq: int) -> None:
        """Act before the process `link` gets a prompt. Clients already show its words.

        `seq`: the prompt's number in the journal.
        """

    def note_progress(self) -> None:
        """Act after the agent wrote something of its turn, or asked something."""

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        """Act on a state from the agent, of one of the kinds in `states`.

        `announced`: the process has the session. Before that it may repeat old states. Returns the
        update as clients are to see it.
        """
        return update

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        """Return the agent's answer to the prompt `key`, changed or not."""
        return answer

    def explains_failure(self) -> bool:
        """Return True if the feature knows why the agent answers prompts with errors."""
        return False

    def end_turn(self, outcome: Outcome) -> None:
        """Act before the client gets the outcome of a prompt."""

    async def open(self) -> str | None:
        """Act before a client loads the session. Return a notice for that client, or None."""
        return None

    async def note_use(self) -> None:
        """Act after the session took a prompt, or a turn ended."""

    async def close(self, reason: str) -> None:
        """Act at the end of the session, a "close" or a "shutdown". Each wait has a bound."""

    def concerned(self, before: SessionState, after: SessionState) -> bool:
        """Return True if a change of the session's state concerns this feature."""
        return True

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Follow a change of the session's state."""


class Decision(Struct, frozen=True):
    """The decision about a tool call: "allow", "deny", "cancelled" or "ask", and who has made it.

    `by`: "rule", "default", "unattended", "hook", "client", "withdrawn" if no client was left to
    answer, "stop", or "agent" if the agent has cancelled its request; empty for "ask". `rules`: the
    rules, as the user wrote them; `option`: the kind of the option that a client has chosen;
    `guarded`: only a person may allow it; `name`: the login of a remote client that has decided.
    """

    action: str
    by: str = ""
    rules: tuple[str, ...] = ()
    option: str = ""
    guarded: bool = False
    name: str = ""

    @property
    def told(self) -> Json:
        """The decision as a card tells it, `_meta.acp_bridge.decided`."""
        said: Json = {"decision": self.action, "by": self.by}
        said |= {"name": self.name} if self.name else {}
        said |= {"rules": list(self.rules)} if self.rules else {}
        return {**said, "option": self.option} if self.option else said


class Decider(Feature):
    """A feature that decides about what the agent asks, before a person is asked.

    Core asks one decider of a session. If it fails, the question is a person's.
    """

    @property
    def unattended(self) -> str:
        """What becomes of a question that nobody can answer: "deny", "ask", or "" for no word."""
        raise NotImplementedError

    def decides(self) -> bool:
        """Return True if it may decide about permissions."""
        raise NotImplementedError

    def refuses(self) -> bool:
        """Return True if it may refuse the agent a client's files and terminals."""
        raise NotImplementedError

    def decide(self, call: Json, kinds: frozenset[str], then: Then) -> Callable[[], None]:
        """Decide about a tool call; returns a function that stops that.

        `kinds`: each kind that the agent has ever given the call. `then` is told the decision, or
        None if it was stopped.
        """
        raise NotImplementedError

    def refuse_command(self, lines: Sequence[str], cwd: str, then: Then) -> Callable[[], None]:
        """Refuse a command in a client's terminal, or leave it; returns and tells as `decide`.

        `lines`: the command lines that the client may make of the words; `cwd`: its folder, or "".
        """
        raise NotImplementedError

    def refuse_file(self, path: str, then: Then, *, writes: bool) -> Callable[[], None]:
        """Refuse the use of a client's file, or leave it; returns and tells as `decide`."""
        raise NotImplementedError

    def tell_allowed(self, about: str) -> None:
        """Act after a call was allowed without asking the person."""

    def waits_for_user(self, kind: str, message: str) -> None:
        """Act when a question of this kind waits for the user."""


class Parts(Protocol):
    """The parts of a session that its features use (`Session` has them)."""

    core: Core
    journal: SessionJournal
    #: the rows of all sessions, as they are listed.
    listing: Journal
    transcript: TranscriptOut
    updates: Updates
    prompts: Prompts
    pauses: Pauses
    user_settings: UserSettings
    #: the deadline of the agent's guards; None: they have none.
    deadline: Deadline | None
    to_agent: ToAgent
    #: by method, what the bridge answers a request without a session while no process lives.
    remembered: dict[str, Json]

    @property
    def capabilities(self) -> object:
        """What the agent said in `initialize` that it can do."""

    @property
    def agent_name(self) -> str:
        """The name under which the agent's sessions are kept."""

    @property
    def steers(self) -> bool:
        """True if the agent takes words into a turn that runs."""

    def unread(self) -> bool:
        """Return True while the process is not read, because a client doesn't read."""

    def link_of(self, epoch: int) -> Link:
        """Return the process of this epoch. Raises KeyError if it is gone."""

    def join_turn(self, key: int) -> list[Json]:
        """Show the words of a prompt in the turn that runs. Return the blocks to send."""

    def when_shown(self, act: Callable[[int], None]) -> None:
        """Call `act` once, with the process's epoch, when the agent shows more of its turn."""

    def tell_queue(self) -> None:
        """Tell the clients what waits, if that has changed."""


#: makes the features of one folder for a session, by the bridge's settings; none if they are off.
MakeFeatures: TypeAlias = Callable[[Parts, Settings], Sequence[Feature]]


class Found(Protocol):
    """What one folder has found for a session before it is made."""

    @property
    def moments(self) -> frozenset[Moment]:
        """The moments at which the session's machine waits for a feature."""

    def make(self, session: Parts, settings: Settings) -> Sequence[Feature]:
        """Make the features of the folder."""


#: adds to the bridge's answer to `initialize` what the features of one folder can do with this
#: agent. Gets the agent's own answer, and the bridge's, which it changes.
Announce: TypeAlias = Callable[[Json, Json], None]
#: refuses a client's request that opens a session, by its parameters, with RpcError. The last
#: argument: what the agent said in `initialize` that it can do.
CheckOpening: TypeAlias = Callable[[Client, Json, object], None]
#: looks for what a session in this folder has; never raises, and its waits have bounds.
Find: TypeAlias = Callable[[Settings, str], Awaitable[Found]]


def _make_none(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return no features."""
    return ()


class Plugin(Struct, frozen=True):
    """What one folder of features plugs into a bridge."""

    make: MakeFeatures = _make_none
    #: None: there is nothing to look for.
    find: Find | None = None
    #: None: `initialize` names nothing of it.
    announce: Announce | None = None
    #: the parameters of requests that open a session which stay with it: each process of the agent
    #: is given them, whoever opens the session again.
    keeps: frozenset[str] = frozenset()
    #: None: it refuses no request that opens a session.
    check: CheckOpening | None = None
    #: by method, what answers a client's request about a session that is not open.
    closed: Mapping[str, AnswersClosed] = {}


class Features:
    """The features of one session. Each method calls the features that override that moment."""

    def __init__(self, features: Sequence[Feature]) -> None:
        """`features`: those that are on, in the order of the calls."""
        self.on = tuple(features)
        self._follow = [each for each in features if _overrides(each, Feature.follow)]
        self._take_words = _having(features, Feature.take_words)
        self._begin_turn = _having(features, Feature.begin_turn)
        self._note_progress = _having(features, Feature.note_progress)
        self._take_answer = _having(features, Feature.take_answer)
        self._end_turn = _having(features, Feature.end_turn)
        self._explain = _having(features, Feature.explains_failure)
        self._open = _having(features, Feature.open)
        self._note_use = _having(features, Feature.note_use)
        self._close = _having(features, Feature.close)
        self._begin = _having(features, Feature.begin)
        self._take_notices = _having(features, Feature.take_notices)
        self._add_words = _having(features, Feature.add_words)
        self._note_death = _having(features, Feature.note_death)
        #: what decides about the agent's questions; None: a person is asked each time.
        self.decider = next((each for each in features if isinstance(each, Decider)), None)
        self._take_command = _having(features, Feature.take_command)
        self._note_prompt = _having(features, Feature.note_prompt)
        self._note_stop = _having(features, Feature.note_stop)
        self._cancel_request = _having(features, Feature.cancel_request)
        self._keeps_awake = _having(features, Feature.keeps_awake)
        self._begin_close = _having(features, Feature.begin_close)
        self.answers = _merged(each.answers for each in features)
        self.takes = _merged(each.takes for each in features)
        self.words = tuple(word for each in features for word in each.words)
        self._effects = _merged(each.effects for each in features)
        self._note_state = {
            kind: tuple(each.note_state for each in features if kind in each.states)
            for kind in frozenset[str]().union(*(each.states for each in features))
        }

    def take_words(self) -> None:
        """Announce a prompt, or words for the running turn. Raises what a feature raises."""
        for take_words in self._take_words:
            take_words()

    def begin_turn(self, link: Link, seq: int) -> None:
        """Announce that the agent gets a prompt."""
        _call(self._begin_turn, link, seq)

    def note_progress(self) -> None:
        """Announce that the agent wrote something of its turn, or asked something."""
        _call(self._note_progress)

    def note_state(self, link: Link, update: Json, *, announced: bool) -> Json:
        """Pass on a state from the agent. Returns it as all features leave it."""
        for note in self._note_state.get(update["sessionUpdate"], ()):
            update = _said(update, note, link, update, announced=announced)
        return update

    def take(self, request: ClientRequest, params: Json) -> None:
        """Let the feature that knows the request's method take it. Raises RpcError."""
        take = self.takes.get(request.method)
        if take is None:
            raise errors.unknown_method(request.method)
        take(request, params)

    def perform(self, effect: Effect) -> bool:
        """Carry out an effect; raises what its owner raises. False: no feature owns it."""
        owner = self._effects.get(type(effect))
        if owner:
            owner(effect)
        return owner is not None

    def take_command(self, command: Command) -> bool:
        """Let a feature carry out words of `/queue`. Returns False if they are nobody's."""
        return any(take(command) for take in self._take_command)

    def note_prompt(self, params: Json) -> bool:
        """Announce that the session took a prompt. Return True if a feature has listed it."""
        listed = [_said(False, note, params) for note in self._note_prompt]
        return any(listed)

    def note_stop(self, client: Client) -> None:
        """Announce the Stop of a client's user."""
        _call(self._note_stop, client)

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Let a feature cancel a request that it answers. Returns False if it is nobody's."""
        return any(_said(False, cancel, client, request_id) for cancel in self._cancel_request)

    def keep_awake(self) -> bool:
        """Return True while a feature needs the agent's process."""
        return any(_said(False, keeps) for keeps in self._keeps_awake)

    def begin_close(self) -> None:
        """Announce that somebody closes the session."""
        _call(self._begin_close)

    def take_answer(self, link: Link, key: int, answer: Answer) -> Answer:
        """Return the agent's answer to a prompt as all features leave it."""
        for take in self._take_answer:
            answer = _said(answer, take, link, key, answer)
        return answer

    def explains_failure(self) -> bool:
        """Return True if a feature knows why the agent answers prompts with errors."""
        return any(_said(False, explains) for explains in self._explain)

    def end_turn(self, outcome: Outcome) -> None:
        """Pass on the outcome of a prompt."""
        _call(self._end_turn, outcome)

    async def open(self) -> list[str]:
        """Return the features' notices for a client that loads the session."""
        return [notice for open_ in self._open if (notice := await _awaited(open_))]

    async def note_use(self) -> None:
        """Announce that the session took a prompt, or that a turn ended."""
        for note_use in self._note_use:
            await _awaited(note_use)

    async def close(self, reason: str) -> None:
        """Announce the end of the session: "close" or "shutdown"."""
        for close in self._close:
            await _awaited(close, reason)

    def begin(self, source: str) -> None:
        """Announce that the session is there."""
        _call(self._begin, source)

    def take_notices(self) -> list[str]:
        """Return the features' notices beside a prompt."""
        return [text for take in self._take_notices for text in _said([], take)]

    def add_words(self, key: int) -> str:
        """Return what the features tell the agent with a prompt, or ""."""
        added = [_said("", add, key) for add in self._add_words]
        return "\n\n".join(words for words in added if words)

    def note_death(self, how: object) -> None:
        """Announce that the agent's process died."""
        _call(self._note_death, how)

    def followers(self, before: SessionState, after: SessionState) -> Iterable[Follower]:
        """Return the features' followers that a change of the state concerns."""
        return [each.follow for each in self._follow if _said(False, each.concerned, before, after)]


def _merged(tables: Iterable[Mapping[K, V]]) -> dict[K, V]:
    """Return one table of those of all features, of which no two have the same key."""
    return {key: value for table in tables for key, value in table.items()}


def _overrides(feature: Feature, moment: Callable[..., object]) -> bool:
    return getattr(type(feature), moment.__name__) is not moment


def _having(
    features: Sequence[Feature], moment: Callable[Concatenate[Feature, P], R]
) -> tuple[Callable[P, R], ...]:
    """Return the method for a moment of each feature that overrides it."""
    return tuple(getattr(each, moment.__name__) for each in features if _overrides(each, moment))


def _said(default: R, asked: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Return the answer of a feature. If it raises, log the error and return `default`."""
    try:
        return asked(*args, **named)
    except Exception as exc:
        errors.internal(exc, "a feature failed")
        return default


async def _awaited(method: Callable[P, Awaitable[R]], *args: P.args, **named: P.kwargs) -> R | None:
    """Return the result of a feature. If it raises, log the error and return None."""
    try:
        return await method(*args, **named)
    except Exception as exc:
        errors.internal(exc, "a feature failed")
        return None


def _call(methods: Iterable[Callable[P, object]], *args: P.args, **named: P.kwargs) -> None:
    """Call each method. If one raises, log the error and call the others."""
    for method in methods:
        _said(None, method, *args, **named)
