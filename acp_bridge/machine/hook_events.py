"""What becomes of a prompt and of a turn when hooks begin and end. (invariants C10, Q11)

Hooks run before a prompt is sent and after its turn, whatever the process does meanwhile. They may
refuse the prompt, or send the agent back to work when its turn has ended.
"""

from __future__ import annotations

from typing import assert_never

from acp_bridge.machine.effects import Dropped, Effect, RefuseFeedback
from acp_bridge.machine.events import HookBegan, HookEnded, HookEvent, HooksDone
from acp_bridge.machine.open_hooks import OpenHooks
from acp_bridge.machine.outcomes import Cancelled, Refused
from acp_bridge.machine.prompt_queue import PromptQueue, QueuedPrompt
from acp_bridge.machine.stage import Stage
from acp_bridge.machine.states import State
from acp_bridge.machine.turn_end import TurnEnd

#: hooks send the agent back to work so often in a row for one prompt of the user's.
MAX_AGAIN = 5


class HookEvents:
    """Takes what hooks do and say; methods return effects."""

    def __init__(
        self, stage: Stage, queue: PromptQueue, open_hooks: OpenHooks, turn_end: TurnEnd
    ) -> None:
        """`open_hooks`: those of which the machine is only told."""
        self._stage = stage
        self._queue = queue
        self._open_hooks = open_hooks
        self._turn_end = turn_end

    def take(self, event: HookEvent) -> list[Effect]:
        """Take one event, and go on with what waited for it."""
        out: list[Effect] = []
        match event:
            case HooksDone(key):
                prompt = self._queue.hooked
                if prompt is None or prompt.key != key:
                    return [Dropped(event)]
                out = self._done(prompt, event)
            case HookBegan() if self._stage.state is State.CLOSED:
                return [Dropped(event)]
            case HookBegan(run):
                self._open_hooks.begin(run)
                if self._stage.closing or self._turn_end.cancels:
                    out = self._open_hooks.stop()
            case HookEnded(run):
                if not self._open_hooks.end(run):
                    return [Dropped(event)]
            case _:
                assert_never(event)
        return out + self._turn_end.after_hooks()

    def _done(self, prompt: QueuedPrompt, event: HooksDone) -> list[Effect]:
        """Go on with the prompt whose hooks have ended."""
        feedback, out = event.feedback, list[Effect]()
        if prompt is self._queue.leaving:
            enough = prompt.again >= MAX_AGAIN
            if feedback is not None and not prompt.ending and not enough:
                return self._queue.follow(feedback)
            if feedback is not None:
                out.append(RefuseFeedback(feedback, enough and not prompt.ending))
            self._turn_end.tainted = isinstance(prompt.ending, Cancelled)
        elif event.refusal is not None and not prompt.ending:
            prompt.ending = Refused(event.refusal)
        return out + self._queue.end_hooks()
