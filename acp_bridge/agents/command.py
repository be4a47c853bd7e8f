"""The command that starts processes of an agent, and what they say that they can do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """The agent's command line, at least one word, and the parameters of its `initialize`."""

    words: tuple[str, ...]
    initialize: Mapping[str, Any]
