"""Runs hooks of one session as tasks that can be stopped, and says when they have ended.

- One run is one task: its hooks run one after the other. What is to happen behind it happens when
  no process of it is left, also when it was stopped (invariant C10).
- A project's hooks are looked at again before each of them runs; once they have changed they are
  off for the rest of the session, which says so once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from acp_bridge import errors, notices
from acp_bridge.hooks.found import FoundHooks
from acp_bridge.log import event
from acp_bridge.protocol import Json
from acp_bridge.session.core import Core

if TYPE_CHECKING:
    from acp_bridge.hooks.verdict import Verdict


@dataclass(slots=True, eq=False)
class Run:
    """Hooks that run now, one after the other."""

    number: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class HookRuns:
    """The hooks of one session, and those of them that run."""

    def __init__(self, core: Core, found: FoundHooks) -> None:
        """Nothing runs yet."""
        self._core = core
        self._found = found
        self._runs: dict[int, Run] = {}
        self._last = 0
        self._lost = False
        #: a hook that is off might refuse a permission: the person is asked.
        self.person_asked = found.person_asked
        #: what is to be said of hooks.
        self.unsaid = list(found.notices)

    def has(self, name: str) -> bool:
        """Return True if there are hooks of this event."""
        return any(hook.event == name for hook in self._found.hooks)

    def begin(self, work: Callable[[], Awaitable[None]], behind: Callable[[Run], None]) -> Run:
        """Run hooks in a task of their own; `behind` is called when they have ended."""
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
        """Run the hooks of an event, in order, and return what they say.

        `given`: their input, beside what every hook is told; `names`: what matchers are for. None
        runs after one of which `until` is true.
        """
        from acp_bridge.hooks.environment import environment
        from acp_bridge.hooks.run import run
        from acp_bridge.hooks.verdict import interpret

        cwd = self._core.workspace.cwd
        common = {"session_id": self._core.id, "cwd": cwd, "hook_event_name": name}
        payload = json.dumps({**common, **given}).encode() + b"\n"
        said: list[Verdict] = []
        for hook in self._found.hooks:
            if hook.event != name or not hook.matches(names):
                continue
            if hook.project and not await self._may_run():
                continue
            ran = await run(hook, payload, cwd, environment(os.environ, cwd))
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
        changed = await project.look_again()
        if changed and not self._lost:
            self._lost = self.person_asked = True
            self.unsaid.append(notices.changed_hooks(changed, str(project.folder)))
        return not self._lost
