"""Runs one session's hooks at their moments, and carries out what they say.

- The machine says when hooks about a prompt run, and waits for them; of others it is told, so that
  `cancelled` is not said while one runs (invariant C10). Accepting a prompt waits for none (Q10).
- A permission is given by a hook only if every hook that has a word about it says so; whatever goes
  wrong, the person is asked (invariant C18).
- The user's rules stand around them: a rule's refusal comes first and a rule that asks outweighs a
  hook that allows; a rule allows only where hooks have no word about it (invariant A1).
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.journal import JournalError
from acp_bridge.core.machine import effects as ef
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.events import Moment
from acp_bridge.core.protocol import Json, feedback_prompt, is_feedback
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.feature import Decider, Decision, Feature, Parts, Plugin, Then
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.tool_calls import tool_names
from acp_bridge.core.wire.jsonrpc import Ok
from acp_bridge.features.hooks import notices
from acp_bridge.features.hooks.find import look
from acp_bridge.features.hooks.found import FoundHooks
from acp_bridge.features.rules.found import FoundRules

if TYPE_CHECKING:
    from acp_bridge.features.hooks.verdict import Verdict
    from acp_bridge.features.rules.definitions import Judgement

#: under which the journal keeps the files of hooks that the session has named, each with its hash.
_NAMED: Final = "hooks"
#: the key under which a context waits for the next prompt, whichever that is.
_NEXT: Final = 0
#: the moments of the machine at which hooks of an event have something to do. What the hooks of
#: the session's start tell the agent goes with a prompt.
_MOMENTS = {
    "SessionStart": Moment.PROMPT,
    "UserPromptSubmit": Moment.PROMPT,
    "Stop": Moment.TURN_END,
    "AgentDied": Moment.DEATH,
}


class Run(Struct, eq=False):
    """Hooks that run now, one after the other."""

    number: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class HookRuns:
    """Runs the hooks of one session as tasks that can be stopped, and tells when they have ended.

    One run is one task: its hooks run one after the other. Its `behind` is called when
    no process of it is left, also when it was stopped (invariant C10). A project's hooks are looked
    at again before each of them runs; once they have changed they are off for the rest of the
    session, which says so once.
    """

    def __init__(self, core: Core, found: FoundHooks, deadline: Deadline | None) -> None:
        """Nothing runs yet. The guards of all hooks follow `deadline`."""
        self._core = core
        self._deadline = deadline
        self._found = found
        self._runs: dict[int, Run] = {}
        self._last = 0
        self._lost = False
        #: a hook that is off might have refused a permission, so the person is asked each time.
        self.person_asked = found.person_asked
        #: notices about hooks that no client has been told yet.
        self.unsaid = list(found.notices)

    def has(self, name: str) -> bool:
        """Return True if there are hooks of this event."""
        return any(hook.event == name for hook in self._found.hooks)

    def begin(self, work: Callable[[], Awaitable[None]], behind: Callable[[Run], None]) -> Run:
        """Run `work`, which runs hooks, in a task; `behind` is called when they have ended."""
        self._last += 1
        run = self._runs[self._last] = Run(self._last)
        self._core.spawn(self._beside, run, work, behind)
        return run

    def stop(self) -> None:
        """Kill every hook that runs."""
        for run in self._runs.values():
            run.scope.cancel()

    async def ended(self) -> None:
        """Wait until every run that was stopped has ended; each is bounded by the kill."""
        for run in list(self._runs.values()):
            if run.scope.cancel_called:
                await run.ended.wait()

    async def _beside(
        self, run: Run, work: Callable[[], Awaitable[None]], behind: Callable[[Run], None]
    ) -> None:
        try:
            with run.scope:
                await anyio.lowlevel.checkpoint()  # one that was stopped by now does not begin
                await work()
        except Exception as exc:
            errors.internal(exc, "hooks failed")
        finally:
            del self._runs[run.number]
            run.ended.set()
        if run.scope.cancel_called:
            await self.ended()  # those that were stopped with it
        behind(run)

    async def each(
        self,
        name: str,
        given: Json,
        names: tuple[str, ...] = (),
        until: Callable[[Verdict], bool] = lambda verdict: False,
    ) -> list[Verdict]:
        """Run the hooks of an event, in order, and return their verdicts.

        `given`: their input, beside the session's id and folder and the event's name; `names`: a
        hook with a matcher runs if it matches one of these. No hook runs after a verdict for which
        `until` is true.
        """
        from acp_bridge.features.hooks.environment import environment
        from acp_bridge.features.hooks.run import run
        from acp_bridge.features.hooks.verdict import interpret

        cwd = self._core.workspace.cwd
        if self._core.now.taken:  # the bridge that has the session runs its own
            return []
        common = {"session_id": self._core.id, "cwd": cwd, "hook_event_name": name}
        payload = json.dumps({**common, **given}).encode() + b"\n"
        said: list[Verdict] = []
        for hook in self._found.hooks:
            if hook.event != name or not hook.matches(names):
                continue
            if hook.project and not await self._may_run():
                continue
            ran = await run(hook, payload, cwd, environment(os.environ, cwd), self._deadline)
            verdict = interpret(hook.event, ran)
            said.append(verdict)
            event("hook.ran", session=self._core.id, what=name, how=verdict.problem or "well")
            if verdict.problem is not None:
                self.unsaid.append(notices.hook_failed(name, hook.shown, verdict.problem))
            if until(verdict):
                break
        return said

    async def _may_run(self) -> bool:
        """Return True while the project's hooks are as the user trusted them."""
        project = self._found.project
        if project is None or self._lost:
            return False
        changed = await project.look_again(self._core.workspace.cwd)
        if changed and not self._lost:
            self._lost = self.person_asked = True
            self.unsaid.append(notices.changed_hooks(changed, str(project.folder)))
        return not self._lost


class HooksOfSession(Struct, frozen=True):
    """The hooks that were found for a session; None if there are neither hooks nor notices."""

    found: FoundHooks | None

    @property
    def moments(self) -> frozenset[Moment]:
        """The moments of the machine for which there are hooks."""
        names = {hook.event for hook in self.found.hooks} if self.found else set()
        return frozenset(moment for name, moment in _MOMENTS.items() if name in names)

    def make(self, session: Parts, settings: Settings) -> Sequence[Feature]:
        """Return what runs a session's hooks, and asks its rules."""
        rules = FoundRules(settings, session.core.workspace.cwd)
        return [SessionHooks(session, self.found or FoundHooks(), rules)]


async def find(settings: Settings, cwd: str) -> HooksOfSession:
    """Look for the hooks of a session in `cwd`; never raises."""
    return HooksOfSession(await look(settings.home, cwd))


PLUGIN: Final = Plugin(find=find)


class SessionHooks(Decider):
    """Runs the hooks of one session and asks its rules; without any it does nothing."""

    def __init__(self, session: Parts, found: FoundHooks, rules: FoundRules) -> None:
        """Nothing runs yet."""
        self._rules = rules
        self._journal = session.journal
        #: the hooks whose files are still to be named in a notice; None once that is done.
        self.unnamed: FoundHooks | None = found
        self._core = session.core
        self._prompts = session.prompts
        self._transcript = session.transcript
        self.runs = HookRuns(session.core, found, session.deadline)
        #: what hooks have to tell the agent, by the key of the prompt that carries it, or `_NEXT`.
        self.context: dict[int, str] = {}
        #: the hooks about prompts that run now, by the prompt's key.
        self._about: dict[int, Run] = {}
        self._start: Run | None = None
        self._started = False
        #: of the hooks of the session's end.
        self._at_end = anyio.CancelScope()
        self.effects = {
            ef.RunHooks: self._run,
            ef.StopHooks: self._stop,
            ef.RefuseFeedback: self._refuse_feedback,
        }

    def decides(self) -> bool:
        """Return True if the session has hooks or rules for permissions, or may have."""
        here = self.runs.has("PermissionRequest") or self._rules.there
        return here or self.runs.person_asked

    def refuses(self) -> bool:
        """Return True if the session has rules, which may refuse what an agent does by a client."""
        return self._rules.there

    @property
    def unattended(self) -> str:
        """What the rules say of a question that nobody can answer: "deny", "ask" or ""."""
        return self._rules.unattended

    # --- on the machine's word -----------------------------------------------------------------

    def _run(self, effect: ef.RunHooks) -> None:
        """Run the hooks about a prompt; the machine is told when they have ended."""
        key, before = effect.key, effect.moment is Moment.PROMPT
        done: list[ev.HooksDone] = []

        async def work() -> None:
            done.append(await (self._before(key) if before else self._after(key, effect.again)))

        def behind(run: Run) -> None:
            self._about.pop(key, None)
            self._core.feed(done[0] if done else ev.HooksDone(key))

        self._about[key] = self.runs.begin(work, behind)

    def _stop(self, effect: ef.StopHooks) -> None:
        """Kill every hook that runs, or only those about one prompt."""
        if effect.key is None:
            self._at_end.cancel()
            self.runs.stop()
        elif run := self._about.get(effect.key):
            run.scope.cancel()

    def _refuse_feedback(self, effect: ef.RefuseFeedback) -> None:
        """Forget feedback that is not sent; tell clients if too many came in a row."""
        text = self._prompts.forget(effect.key)["prompt"][0]["text"]
        if effect.enough:
            self._transcript.notice(notices.enough_feedback(text))

    def note_death(self, how: object) -> None:
        """Start the hooks for the agent's death, if there are any, and don't wait for them."""
        reason = how.describe() if isinstance(how, Exit) else "it is gone"
        if self.runs.has("AgentDied"):
            self._aside(partial(self._tell, "AgentDied", {"reason": reason}))

    async def _before(self, key: int) -> ev.HooksDone:
        if self._start:
            await self._start.ended.wait()
        params = self._prompts.get(key).params
        if is_feedback(params):
            return ev.HooksDone(key)
        texts = [block.get("text") for block in params["prompt"] if isinstance(block, dict)]
        given = {"prompt": "\n".join(text for text in texts if isinstance(text, str))}
        said = await self.runs.each("UserPromptSubmit", given, until=_blocks)
        for verdict in said:
            if verdict.block is not None:
                return ev.HooksDone(key, refusal=verdict.block)
        self.context[key] = _joined([verdict.context for verdict in said])
        return ev.HooksDone(key)

    async def _after(self, key: int, again: int) -> ev.HooksDone:
        answer = self._prompts.get(key).answer
        result = answer.result if isinstance(answer, Ok) else None
        if not isinstance(result, dict) or result.get("stopReason") == "cancelled":
            return ev.HooksDone(key)  # the turn failed, or the client has ended it
        given = {"stop_hook_active": again > 0, "stop_reason": result.get("stopReason")}
        said = await self.runs.each("Stop", given)
        self._say()
        text = _joined([verdict.block or "" for verdict in said])
        if not text:
            return ev.HooksDone(key)
        params = {"sessionId": self._core.id, **feedback_prompt(notices.feedback(text))}
        return ev.HooksDone(key, feedback=self._prompts.add(params, None))

    # --- the life of the session ---------------------------------------------------------------

    def begin(self, source: str) -> None:
        """Start the hooks of the session's start; the next prompt has what they tell the agent."""
        self._started = True
        if self.runs.has("SessionStart"):
            self._start = self._aside(partial(self._begin, source))

    async def _begin(self, source: str) -> None:
        said = await self.runs.each("SessionStart", {"source": source}, (source,))
        self.context[_NEXT] = _joined([verdict.context for verdict in said])

    async def close(self, reason: str) -> None:
        """Kill all hooks that run, then run those of the session's end, for a bounded time."""
        self.runs.stop()
        await self.runs.ended()
        if self._started and self.runs.has("SessionEnd"):
            with anyio.move_on_after(waits.HOOK_AT_END) as self._at_end:
                await self.runs.each("SessionEnd", {"reason": reason}, (reason,))

    # --- the agent asks ------------------------------------------------------------------------

    def decide(self, call: Json, kinds: frozenset[str], then: Then) -> Callable[[], None]:
        """Let rules and hooks decide about a tool call; see `Decider`."""
        name, kind = tool_name(call)
        given = {"tool_name": name, "tool_kind": kind, "tool_title": call.get("title")}
        given |= {"tool_input": call.get("rawInput"), "tool_use_id": call.get("toolCallId")}
        return self._deciding(
            lambda: self._permission(call, kinds, given, (name, kind)),
            then,
            Decision("ask", guarded=True),
        )

    def refuse_command(self, lines: Sequence[str], cwd: str, then: Then) -> Callable[[], None]:
        """Let the rules refuse a command in a client's terminal; see `Decider`."""
        return self._refusing(lambda: self._rules.judge_command(*lines, cwd=cwd), lines[0], then)

    def refuse_file(self, path: str, then: Then, *, writes: bool) -> Callable[[], None]:
        """Let the rules refuse the use of a client's file; see `Decider`."""
        return self._refusing(lambda: self._rules.judge_file(path, writes=writes), path, then)

    def _refusing(
        self, judge: Callable[[], Awaitable[Judgement]], about: str, then: Then
    ) -> Callable[[], None]:
        async def decision() -> Decision:
            judgement = await judge()
            if judgement.deny is None and not judgement.unjudged:
                return Decision("ask")
            return self._refused(about, str(judgement.deny or judgement.why))

        unjudged = Decision("deny", "rule", ("the rules could not be judged",))
        return self._deciding(decision, then, unjudged)

    def _deciding(
        self,
        decision: Callable[[], Awaitable[Decision]],
        then: Then,
        failed: Decision,
    ) -> Callable[[], None]:
        """Run `decision` in a task, and tell `then` its result, or `failed` if it breaks (A1).

        Returns a function that stops it; `then` is told None in that case.
        """
        result: list[Decision] = []

        async def work() -> None:
            result.append(await decision())

        def behind(run: Run) -> None:
            stopped = run.scope.cancel_called
            then(result[0] if result else None if stopped else failed)

        return self._aside(work, behind).scope.cancel

    def tell_allowed(self, about: str) -> None:
        """Say in the session that a call was allowed without asking the person."""
        self._transcript.notice(notices.permission_allowed(about))

    def waits_for_user(self, kind: str, message: str) -> None:
        """Start the hooks that tell the user of a question, and don't wait for them."""
        if self.runs.has("Notification"):
            given = {"notification_type": kind, "message": message}
            self._aside(partial(self._tell, "Notification", given, (kind,)))

    async def _permission(
        self, call: Json, kinds: frozenset[str], given: Json, names: tuple[str, ...]
    ) -> Decision:
        judged = await self._rules.judge(call, kinds) if self._rules.there else None
        title = str(given["tool_title"] or given["tool_name"] or "a tool call")
        if judged and judged.deny:
            return self._refused(title, str(judged.deny))
        hooks = None
        if self.runs.has("PermissionRequest") or self.runs.person_asked:
            hooks = await self._hooks_say(given, names, title)
        if hooks == "allow" and judged is None:  # what guards the user is the user's to allow
            judged = await self._rules.judge(call, kinds)
        self._say()
        if hooks == "deny":
            return Decision("deny", "hook")
        protected = hooks == "failed" or bool(judged and judged.protected)
        if hooks in ("ask", "failed") or (judged and (judged.ask or judged.protected)):
            return Decision("ask", guarded=protected)
        if hooks == "allow":
            return Decision("allow", "hook")
        return self._ruled(judged, title) if judged else Decision("ask")

    async def _hooks_say(self, given: Json, names: tuple[str, ...], title: str) -> str | None:
        """Return "allow", "deny" or "ask", or None if no hook has a word about a call.

        "failed": only a person may allow it, since a hook that has failed might have refused it.
        """
        from acp_bridge.features.hooks.verdict import Permission, decide

        said = await self.runs.each("PermissionRequest", given, names, _denies)
        self._say()
        decision, why = decide(said)
        if decision is Permission.DENY:
            self._transcript.notice(notices.permission_refused(title, why))
        word = decision.value if decision else None
        failed = self.runs.person_asked or any(each.problem is not None for each in said)
        if failed and decision is not Permission.DENY:
            word = "failed"
        event("hook.decided", session=self._core.id, what=word or "nothing")
        return word

    def _ruled(self, judged: Judgement, title: str) -> Decision:
        """Return what the rules decide where no hook has a word."""
        if judged.allowed:
            return Decision("allow", "rule", tuple(map(str, judged.allowed)))
        if judged.default == "deny":
            self._transcript.notice(notices.rule_refused(title, judged.why or "no rule allows it"))
            return Decision("deny", "default")
        return Decision("ask")

    def _refused(self, title: str, rule: str) -> Decision:
        self._say()
        self._transcript.notice(notices.rule_refused(title, rule))
        return Decision("deny", "rule", (rule,))

    async def _tell(self, name: str, given: Json, names: tuple[str, ...] = ()) -> None:
        await self.runs.each(name, given, names)

    def _aside(
        self, work: Callable[[], Awaitable[None]], then: Callable[[Run], None] = lambda run: None
    ) -> Run:
        """Run hooks that the machine didn't ask for; it is told when they begin and end."""

        def behind(run: Run) -> None:
            then(run)
            self._core.feed(ev.HookEnded(run.number))

        run = self.runs.begin(work, behind)
        self._core.feed(ev.HookBegan(run.number))
        return run

    # --- what is said --------------------------------------------------------------------------

    def take_notices(self) -> list[str]:
        """Return the notices about hooks since the last call, if there are any."""
        return self._take_unsaid() if self.unnamed is not None or self.runs.unsaid else []

    def _take_unsaid(self) -> list[str]:
        """Return the notices about hooks and rules since the last call."""
        unsaid = [*self.runs.unsaid, *self._rules.unsaid]
        self.runs.unsaid, self._rules.unsaid = [], []
        return [*self._news(), *unsaid]

    def _news(self) -> list[str]:
        """Return, once, the notices of hook files that are new, changed or gone for the session."""
        found, self.unnamed = self.unnamed, None
        if found is None:
            return []
        named: dict[str, str | None] = {}
        try:
            named = self._journal.get(_NAMED) or {}
            now = {path: at or named.get(path) for path, at in found.files.items()}
            if now != named:
                self._journal.set(_NAMED, now)
        except JournalError as exc:
            event("journal.failed", session=self._core.id, what=exc)
        return found.news(named)

    def add_words(self, key: int) -> str:
        """Return, once, the context that hooks have given for the agent with this prompt."""
        return _joined([self.context.pop(_NEXT, ""), self.context.pop(key, "")])

    def _say(self) -> None:
        for text in self._take_unsaid():
            self._transcript.notice(text)


def tool_name(call: Json) -> tuple[str, str]:
    """Return the name of a call's tool and its ACP kind, each empty if the agent gives none.

    ACP has no names of tools: an agent that tells one does so in `_meta`. Else the kind is the
    name.
    """
    kind = call.get("kind")
    kind = kind if isinstance(kind, str) else ""
    return next(tool_names(call), kind), kind


def _blocks(verdict: Verdict) -> bool:
    return verdict.block is not None


def _denies(verdict: Verdict) -> bool:
    return verdict.permission is not None and verdict.permission.value == "deny"


def _joined(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text)
