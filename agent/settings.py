"""What the agent is told from outside: arguments and environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MAX_CALLS = 100


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
    max_calls: int = _MAX_CALLS


def read_settings(
    model: str | None, env: Mapping[str, str], home_folder: str | None = None
) -> Settings:
    """`model`, `home_folder`: arguments, which win over the environment. Raises ValueError."""
    home = _home(home_folder or env.get("ACP_BRIDGE_HOME"))
    return Settings(
        folder=home / "agent",
        keys_file=home / "keys.env",
        model=(env.get("ACP_BRIDGE_MODEL", "") if model is None else model).strip(),
        models=_names(env.get("ACP_BRIDGE_MODELS", "")),
        summary_model=env.get("ACP_BRIDGE_SUMMARY_MODEL", "").strip(),
        max_calls=_count(env.get("ACP_BRIDGE_MAX_CALLS", "")),
    )


def _home(folder: str | None) -> Path:
    if folder:
        return Path(folder).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("acp-bridge", appauthor=False)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _count(text: str) -> int:
    if not text.strip():
        return _MAX_CALLS
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError("ACP_BRIDGE_MAX_CALLS: a whole number from 1")
    return count
