"""The agent's settings, read from its arguments and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from acp_bridge.core.settings import default_home

_MAX_CALLS = 100


class Settings(Struct, frozen=True):
    #: the folder in which transcripts are kept
    folder: Path
    #: a file of NAME=value lines, which need not exist; read whenever a key is looked for
    keys_file: Path
    #: `--model`, ACP_BRIDGE_MODEL: `demo`, `scripted:PATH`, or a model as LiteLLM names it; empty:
    #: the first model whose key is found, or `demo` without any key
    model: str = ""
    #: ACP_BRIDGE_MODELS, separated by commas: models that are offered besides those with a key
    models: tuple[str, ...] = ()
    #: ACP_BRIDGE_MODEL_ABILITIES: what models of the user's own servers can do (see
    #: agent.providers.abilities)
    abilities: str = ""
    #: ACP_BRIDGE_SUMMARY_MODEL: the model that summarises; empty stands for the session's own
    summary_model: str = ""
    #: ACP_BRIDGE_MAX_CALLS: how many model calls one turn may take
    max_calls: int = _MAX_CALLS
    #: ACP_BRIDGE_STUCK_DETECTION: False if a model that goes round in circles is not stopped
    stuck_detection: bool = True


def read_settings(
    model: str | None, env: Mapping[str, str], home_folder: str | None = None
) -> Settings:
    """Returns the settings; the arguments `model` and `home_folder` win over the environment.

    Raises ValueError if a variable's value is malformed.
    """
    home = _home(home_folder or env.get("ACP_BRIDGE_HOME"))
    return Settings(
        folder=home / "agent",
        keys_file=home / "keys.env",
        model=(env.get("ACP_BRIDGE_MODEL", "") if model is None else model).strip(),
        models=_names(env.get("ACP_BRIDGE_MODELS", "")),
        abilities=env.get("ACP_BRIDGE_MODEL_ABILITIES", ""),
        summary_model=env.get("ACP_BRIDGE_SUMMARY_MODEL", "").strip(),
        max_calls=_count(env.get("ACP_BRIDGE_MAX_CALLS", "")),
        stuck_detection=_switch("ACP_BRIDGE_STUCK_DETECTION", env),
    )


def _home(folder: str | None) -> Path:
    return Path(folder).expanduser().absolute() if folder else default_home()


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


def _switch(name: str, env: Mapping[str, str]) -> bool:
    """Returns True unless the variable says `off`."""
    match env.get(name, "").strip().lower():
        case "" | "on":
            return True
        case "off":
            return False
    raise ValueError(f"{name}: on or off")
