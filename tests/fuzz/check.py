"""The end of a run: every session is loaded, compared with all that was shown, and used."""

from __future__ import annotations

import random

from acp_bridge.sharing.elsewhere.passage_words import HOLDER_ENDED
from tests.crash.told import Lost
from tests.fuzz.ledger import Ledger
from tests.fuzz.life import Life
from tests.fuzz.place import Place
from tests.fuzz.prompts import KEPT, NOT_JOINED, UNREAD, Prompt
from tests.fuzz.sights import flat, part_of
from tests.fuzz.transcripts import Updates
from tests.support.recording import Recording
from tests.whole.judge import judge_lines


class Check:
    """Looks at what a run has left."""

    def __init__(self, place: Place) -> None:
        """No bridge lives any more."""
        self._place = place
        self._ledger: Ledger = place.ledger

    async def run(self) -> None:
        """A bridge with a good agent shows every session as it was, and each can be used.

        Raises Lost.
        """
        self._judge_logs()
        (self._place.home / "hooks.toml").write_text("")
        life = await self._place.start(plain=True)
        await life.begin()
        known = set(self._ledger.transcripts) - self._ledger.gone
        mine = [s for s in known if not self._ledger.transcripts[s].unknown]
        listed = await life.first.client.request("session/list", {}, within=10)
        for session_id in sorted(mine):
            await self._check_session(life, session_id)
        rows = {row["sessionId"] for row in listed["sessions"]}
        if back := rows & self._ledger.deleted:
            raise Lost(f"deleted, and listed again: {back}")
        used = {p.session_id for p in self._ledger.everybodys if p.stopped == "end_turn"}
        if gone := (used & set(mine)) - rows:
            raise Lost(f"not listed any more: {gone}")
        life.first.quiet = True
        await life.end("EOF", random.Random(0))
        await self._place.leave(life)
        self._ledger.judge_agents(self._place.log)

    def _judge_logs(self) -> None:
        """What bridges logged when nobody read their stderr."""
        try:
            judge_lines(Recording(), self._place.said())
        except AssertionError as exc:
            raise Lost(f"the log of the kept bridges: {exc}") from exc

    async def _check_session(self, life: Life, session_id: str) -> None:
        client = life.first.client
        mark = client.mark()
        result = await client.load_session(session_id, self._place.cwd)
        shown = [
            message["params"]
            for message in client.recording.requests("session/update", mark)
            if message["params"]["sessionId"] == session_id
        ]
        whole = list(filter(None, map(part_of, shown)))
        users = [
            params["update"]["content"]["text"]
            for params in shown
            if params["update"]["sessionUpdate"] == "user_message_chunk"
        ]
        own = result["_meta"]["acp_bridge"]
        held = [block["text"] for prompt in own.get("held", []) for block in prompt]
        for prompt in self._ledger.everybodys:
            # What is replayed later than a load's first turn comes twice.
            if prompt.session_id == session_id and not self._ledger.replays_late:
                self._check_prompt(prompt, users.count(prompt.text), held.count(prompt.text))
                self._check_kept(prompt, users, held, whole)
        self._ledger.judge_whole(session_id, whole)
        again = await client.load_session(session_id, self._place.cwd)
        if again["_meta"]["acp_bridge"].get("held", []) != own.get("held", []):
            raise Lost(f"a second load holds something else: {held}")
        answer = await client.prompt(f"say after {session_id}", session_id, within=15)
        if answer != {"stopReason": "end_turn"}:
            raise Lost(f"the session is of no use any more: {answer}")
        self._ledger.counts["session: checked"] += 1

    def _check_prompt(self, prompt: Prompt, said: int, held: int) -> None:
        where = f"prompt {prompt.number} ({prompt.answer}): {said} times said, {held} times held"
        # Whose bridge passes a session on is told that its holder has ended: what waited is held.
        # So is what waited as the session was closed for all.
        # Words that were to join a turn may be shown in it, and again when they are sent again.
        left = (HOLDER_ENDED, KEPT, UNREAD, NOT_JOINED)
        open_still = prompt.given_up or any(each in str(prompt.answer) for each in left)
        answer = None if open_still else prompt.answer
        if said + held > (3 if prompt.steers else 1) or (held and answer):
            raise Lost(where)
        if prompt.number in self._ledger.begun and (said, held) != (1, 0):
            raise Lost(f"the turn of {where} was told to have begun")
        # An answer that the kill swallowed may have been `cancelled`: nothing of it is shown then.
        waits = prompt.accepted and not answer and not prompt.stoppable
        if said + held < 1 and prompt.stopped == "end_turn":
            raise Lost(where)
        if said + held < 1 and waits and prompt.session_id not in self._ledger.dropped:
            raise Lost(where)

    def _check_kept(
        self, prompt: Prompt, users: list[str], held: list[str], whole: Updates
    ) -> None:
        """What a bridge had accepted that outlives its client has run when that rests."""
        waits = prompt.accepted and not prompt.answer and not prompt.stoppable
        if not prompt.kept or not waits or prompt.steers:
            return
        self._ledger.counts["kept: run to the end"] += 1
        if prompt.text not in users:
            raise Lost(f"prompt {prompt.number} was kept, and did not run: held {held}")
        missing = [word for word in prompt.words if word not in flat(whole)]
        if missing and not self._ledger.counts["agent: killed"] and not _ends_early(prompt):
            raise Lost(f"prompt {prompt.number} was kept, and has not said {missing}")


def _ends_early(prompt: Prompt) -> bool:
    """Its agent may end before it has said all; what was cut off is told in the session."""
    return any(command in prompt.text for command in ("; die", "; exit"))
