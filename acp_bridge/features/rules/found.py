"""The rules of a session, if there are any: without a file of rules nothing more is imported."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from acp_bridge.core import errors
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.settings import Settings
from acp_bridge.features.hooks.find import may_be_there
from acp_bridge.features.rules import notices as rule_notices
from acp_bridge.features.rules import opened
from acp_bridge.features.rules.places import OWN_FILE, PROJECT_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acp_bridge.features.rules.definitions import Judgement
    from acp_bridge.features.rules.session_rules import SessionRules


class FoundRules:
    """Judges what an agent asks by the rules of its session, in bounded time."""

    def __init__(self, settings: Settings, cwd: str) -> None:
        """`cwd`: the session's folder; its files of rules are read when a call is judged.

        What the user's file is now is kept, if it is there: nothing that it allows later counts
        without the user (invariant A3).
        """
        self._own = settings.rules or settings.home / OWN_FILE
        self._project = Path(cwd, PROJECT_FILE)
        self._settings = settings
        self._cwd = cwd
        self._opened = opened.look(self._own, settings.home)
        self._rules: SessionRules | None = None
        # One at a time: what an agent asks behind another thing is not done before it.
        self._one = anyio.Lock()
        #: the last call could not be judged, and a notice says so.
        self._unjudged = False
        #: notices about files with mistakes that no client has been told yet.
        self.unsaid: list[str] = []

    @property
    def there(self) -> bool:
        """True if a file of rules is there, or was."""
        known = self._rules is not None or self._opened.content is not None
        return known or may_be_there(self._own) or may_be_there(self._project)

    @property
    def unattended(self) -> str:
        """What becomes of a question that nobody can answer: "deny", "ask", or "" for no word."""
        return self._rules.unattended or "" if self._rules is not None else ""

    async def judge(self, described: Json, kinds: Iterable[object]) -> Judgement:
        """Return what the rules say of a tool call as the agent has described it.

        `kinds`: each kind that the call was ever said to be of.
        """
        return await self._judged(lambda rules: rules.judge(described, kinds))

    async def judge_file(self, path: str, *, writes: bool) -> Judgement:
        """Return what the rules say of a file that the agent reads or writes at the client."""
        return await self._judged(lambda rules: rules.judge_file(path, writes=writes))

    async def judge_command(self, *lines: str, cwd: str = "") -> Judgement:
        """Return what the rules say of a command that the agent runs in the client's terminal.

        `lines`: the command lines that the client may make of the words of the command; `cwd`: the
        folder that the command names, if any.
        """
        return await self._judged(lambda rules: rules.judge_command(*lines, cwd=cwd))

    async def _judged(
        self, judge: Callable[[SessionRules], tuple[Judgement, list[str]]]
    ) -> Judgement:
        """Judge in a thread; if that fails or takes too long, the judgement is to ask a person."""
        why = "the rules could not be read in time"
        try:
            with anyio.move_on_after(waits.HOOKS_READ), suppress(NoThread):
                async with self._one:
                    work = partial(self._judge_here, judge)
                    judgement, said = await in_thread(work, abandon_on_cancel=True)
                self.unsaid += said
                self._unjudged = False
                return judgement
        except Exception as error:
            errors.internal(error, "a call can't be judged by the rules")
            why = "the rules can't judge it"
        if not self._unjudged:
            self._unjudged = True
            self.unsaid.append(rule_notices.unjudged(why))
        from acp_bridge.features.rules.definitions import Judgement

        return Judgement(why=why, protected=True, unjudged=True)

    def _judge_here(
        self, judge: Callable[[SessionRules], tuple[Judgement, list[str]]]
    ) -> tuple[Judgement, list[str]]:
        from acp_bridge.features.rules.session_rules import SessionRules

        if self._rules is None:
            home, agent = self._settings.home, self._settings.agent_name
            files = self._own, self._project
            self._rules = SessionRules(*files, home, self._cwd, agent, self._opened)
        return judge(self._rules)
