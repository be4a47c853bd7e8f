"""What each part that takes events of a machine decides with."""

from __future__ import annotations

from dataclasses import dataclass

from acp_bridge.machine.epochs import Epochs
from acp_bridge.machine.gate import Gate
from acp_bridge.machine.open_hooks import OpenHooks
from acp_bridge.machine.prompt_queue import PromptQueue
from acp_bridge.machine.restarts import Restarts
from acp_bridge.machine.stage import Stage
from acp_bridge.machine.turn_end import TurnEnd


@dataclass(slots=True, eq=False)
class EventTaker:
    """Takes some of a machine's events; all that do so share one of each of these parts."""

    _stage: Stage
    _queue: PromptQueue
    _gate: Gate
    _epochs: Epochs
    _open_hooks: OpenHooks
    _restarts: Restarts
    _turn_end: TurnEnd
