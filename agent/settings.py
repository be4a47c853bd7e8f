"""What the agent is told from outside: arguments and environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    #: where transcripts are kept
    folder: Path
    #: where `keys.env` may lie: NAME=value lines, read again whenever a key is looked for
    keys_file: Path
    #: `--model`, ACP_BRIDGE_MODEL: `demo`, `scripted:PATH`, or a model as LiteLLM names it;
    #: empty: the first whose key is there, else `demo`
    model: str = ""
    #: ACP_BRIDGE_MODELS, separated by commas: offered beside those whose key is there
    models: tuple[str, ...] = ()
    #: ACP_BRIDGE_SUMMARY_MODEL: summarises what no longer fits; empty: the session's own
    summary_model: str = ""
    #: ACP_BRIDGE_MAX_CALLS: model calls in one turn
    max_calls: int = 100
