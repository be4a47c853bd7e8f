"""Carries out a turn's requests, its question to the user, and its words.

Invariants
- Nothing that begins a run is sent before the server has the last confirmation policy: a restarted
  server has that of the conversation's creation, so that a restart would widen rights (invariant
  R13).
- A message is sent only when the agent would not be given an interrupted one before it. The server
  takes an interrupted message of such an agent for one that is still to be sent: with the next
  message the agent would get it first, although it was answered `cancelled` (invariant C1).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.client import Client, ClientError
from agent.openhands import confirmation
from agent.openhands.events import Action, Json, Status, status_of
from agent.openhands.live_feed import LiveFeed
from agent.openhands.options import Options
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.prompt import Message
from agent.openhands.server import Server
from agent.openhands.shown import Shown
from agent.openhands.stopping import Waiting

_ACP_AGENT = "ACPAgent"
#: the member of the agent's state with the id of the last message that it has completed
_DONE = "acp_last_prompt_user_message_id"


@dataclass(frozen=True, slots=True)
class TurnShell:
    """Carries out the requests of one turn and its question to the user.

    `message`: None for a turn that only stops what runs.
    """

    conversation_id: str
    server: Server
    live: LiveFeed
    options: Options
    client: Client
    shown: Shown
    message: Message | None

    @property
    def waiting(self) -> Waiting:
        return self.live.feed.waiting

    async def send_message(self) -> None:
        assert self.message is not None
        try:
            await self._keep_policy()
            if left := left_over(self.live.feed.state):
                await self.server.leave_out(self.conversation_id, left)
        except ServerProblem as problem:
            raise ServerProblem(Kind.UNREACHED, str(problem)) from problem
        await self.server.send_message(self.conversation_id, list(self.message.content))

    async def run(self) -> None:
        await self._keep_policy()
        await self.server.run(self.conversation_id)

    async def confirm(self, accept: bool, reason: str) -> None:
        if accept:
            await self._keep_policy()
        await self.server.confirm(self.conversation_id, accept, reason)

    async def interrupt(self) -> None:
        await self.server.interrupt(self.conversation_id)

    async def pause(self) -> None:
        await self.server.pause(self.conversation_id)

    async def sync(self) -> Status | None:
        return await self.live.sync()

    async def ask(self, actions: tuple[Action, ...]) -> bool | None:
        """Asks the user about all actions at once; True only for an answer that allows them.

        Returns None if the client cancelled the question.
        """
        try:
            answer = await self.client.ask(*confirmation.question(actions))
        except ClientError as error:
            await self.say(error.explain("[OpenHands] The question could not be asked"))
            return False
        return None if answer is None else confirmation.is_consent(answer)

    async def say(self, text: str) -> None:
        await self.shown.say(text)

    async def _keep_policy(self) -> None:
        told = self.live.feed.state.get("confirmation_policy")
        if not self.live.state_known or told not in (None, self.options.policy):
            await self.server.set_policy(self.conversation_id, self.options.policy)


def left_over(state: Json) -> str | None:
    """Returns the id of the interrupted message that the agent would get again with the next one.

    Returns None if there is none. `state`: the conversation's state.
    """
    agent, last = state.get("agent"), state.get("last_user_message_id")
    if not isinstance(agent, dict) or agent.get("kind") != _ACP_AGENT or not isinstance(last, str):
        return None
    if status_of(state.get("execution_status")) not in (Status.PAUSED, Status.ERROR):
        return None
    of_agent = state.get("agent_state")
    done = of_agent.get(_DONE) if isinstance(of_agent, dict) else None
    return None if done == last else last
