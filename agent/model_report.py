"""`python -m agent.model_report`: prints a line of JSON on the keys and the resulting model.

`acp-bridge doctor` and `acp-bridge key --list` start it, since the bridge imports nothing of the
agent: it reports what the agent itself would find and choose.

Invariants
- It contains no value of a key, nor a part of one. A name is given only if it looks like a
  variable's, because a line of the file may be nothing but a key.
- Nothing is sent anywhere without `--online`, and LiteLLM is not loaded.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from acp_bridge.core.agents import guard
from agent.model import Message, Model, ModelError, Token
from agent.providers.all_models import AllModels
from agent.providers.aws import CREDENTIALS
from agent.providers.keys import FileUse, Keys, Look
from agent.providers.known_providers import PROVIDERS
from agent.secrets import Secrets, is_model_key
from agent.settings import Settings, read_settings

if TYPE_CHECKING:
    from dotenv.parser import Binding, Original

#: the environment variable of this project's other agent (agent.openhands)
_SERVER_KEY: Final = "OPENHANDS_SESSION_API_KEY"
#: seconds for the model's answer to the request of `--online`
_PATIENCE: Final = 60.0
#: Words in capitals joined by `_`, as in names of variables; no provider's key looks like that.
_NAME: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_QUESTION: Final[tuple[Message, ...]] = ({"role": "user", "content": "Answer with the word ok."},)

_COUNTS: Final = (FileUse.USED, FileUse.EXPOSED)
_PROVIDER_OF: Final = {name: each.name for each in PROVIDERS.values() for name in each.keys}
_ADDRESSES: Final = {name: each.name for each in PROVIDERS.values() for name in each.base_urls}

Json = dict[str, Any]


def main() -> int:
    """Prints the report; returns 0, or 2 for wrong arguments."""
    guard.keep_private()
    guard.take_keys()
    guard.mark()  # an agent's mark: the process can't connect to a bridge
    parser = argparse.ArgumentParser(prog="python -m agent.model_report")
    parser.add_argument("--model")
    parser.add_argument("--home")
    parser.add_argument("--online", action="store_true")
    given = parser.parse_args()
    logging.disable()  # the report itself says what is wrong with the file
    try:
        settings = read_settings(given.model, os.environ, given.home)
        secrets = Secrets.from_environment(os.environ)
        secrets.watch(settings.keys_file)
        models = AllModels(settings, os.environ, on_key=secrets.add, mask=secrets.mask)
        found = report(settings, os.environ, models)
        if given.online:
            import anyio

            found["online"] = anyio.run(asked, models, found["model"], secrets)
    except ValueError as error:
        found = {"error": str(error)}
    print(json.dumps(found))
    return 0


def report(settings: Settings, env: Mapping[str, str], models: AllModels) -> Json:
    """Returns the report without the member `online`."""
    look = Keys(settings.keys_file, env).look()
    default = models.default
    return {
        "file": str(settings.keys_file),
        "fileUse": look.file_use.value,
        "unreadLines": unread_lines(settings.keys_file) if look.file_use in _COUNTS else [],
        "keys": keys(look, env),
        "model": default,
        "named": bool(settings.model),
        "problem": _problem(models, default),
        "models": [choice.id for choice in models.offered()],
        "litellm": _litellm(),
    }


def keys(look: Look, env: Mapping[str, str]) -> list[Json]:
    """Returns the name and place of each key and base URL that is set; the environment wins."""
    in_env = [name for name, value in env.items() if value.strip() and _is_looked_for(name)]
    in_file = [name for name in look.in_file if _NAME.fullmatch(name)]
    return [
        {
            "name": name,
            "from": "environment" if name in in_env else "keys.env",
            "alsoInFile": name in in_env and name in in_file,
            "address": name in _ADDRESSES,
            "provider": _PROVIDER_OF.get(name) or _ADDRESSES.get(name),
        }
        for name in sorted({*in_env, *in_file})
    ]


def unread_lines(file: Path) -> list[int]:
    """Returns the numbers of the lines of the file that set no variable."""
    from dotenv.parser import parse_stream

    try:
        with file.open(encoding="utf-8") as lines:
            bindings = list(parse_stream(lines))
    except (OSError, ValueError):
        return []
    return [_line(binding.original) for binding in bindings if _is_unread(binding)]


def _is_unread(binding: Binding) -> bool:
    if binding.key is None:
        return binding.error
    return binding.value is None or binding.key != binding.key.upper()


def _line(original: Original) -> int:
    blank = len(original.string) - len(original.string.lstrip())
    return original.line + original.string[:blank].count("\n")


def _is_looked_for(name: str) -> bool:
    return is_model_key(name) or name in {*_PROVIDER_OF, *_ADDRESSES, *CREDENTIALS, _SERVER_KEY}


def _problem(models: AllModels, model_id: str) -> str | None:
    try:
        models.open(model_id)
    except ModelError as error:
        return str(error)
    return None


def _litellm() -> str | None:
    try:
        return version("litellm")
    except PackageNotFoundError:
        return None


class Opens(Protocol):
    """An object that opens models, as AllModels does."""

    def open(self, model_id: str) -> Model:
        """Returns the model with this id. Raises ModelError."""


async def asked(models: Opens, model_id: str, secrets: Secrets) -> Json:
    """Sends a short request to a model; returns `{"ms"}` or `{"problem"}`."""
    import anyio

    async def drop(token: Token) -> None:
        """Ignores a token of the answer."""

    began = monotonic()
    try:
        with anyio.fail_after(_PATIENCE):
            await models.open(model_id).complete(_QUESTION, (), drop)
    except ModelError as error:
        return {"problem": secrets.mask(str(error))}
    except TimeoutError:
        return {"problem": f"{model_id} has not answered within {_PATIENCE:g} s."}
    except Exception as error:  # a library's text is not for users
        return {"problem": f"{model_id} could not be asked ({type(error).__name__})."}
    return {"ms": round(1000 * (monotonic() - began))}


if __name__ == "__main__":
    sys.exit(main())
