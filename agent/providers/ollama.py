"""Asks an Ollama server what its model can do.

Ollama silently cuts a conversation that doesn't fit. The window that counts is neither the model's
own nor the same on each machine: it is what the server gave the model when it loaded it.

Invariants
- No request is made that would cause the server to load a model.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from agent.loose import count, members, objects, words
from agent.model import ModelInfo
from agent.providers import http_connection
from agent.providers.outgoing import Target

_log = logging.getLogger(__name__)

PROVIDERS = frozenset(["ollama", "ollama_chat"])
_ADDRESS = "http://localhost:11434"
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
#: the thought levels of a thinking model; for most models Ollama only knows on and off
_LEVELS = ("low", "medium", "high")


class Ollama:
    """What Ollama servers said of their models, remembered for the life of the process."""

    def __init__(self) -> None:
        #: what `/api/show` says of a model, by the server's address and the model's name
        self._shown: dict[tuple[str, str], ModelInfo] = {}
        #: the window with which a model was last seen loaded
        self._loaded: dict[tuple[str, str], int] = {}

    async def info(self, target: Target) -> ModelInfo | None:
        """Returns the server's description of a model; None if it is silent or has no such model.

        The window is the one with which the model was last seen loaded; before that, the one in its
        definition.
        """
        key = (target.base_url or _ADDRESS).removesuffix("/api"), target.model
        try:
            if key not in self._shown:
                self._shown[key] = _shown(await _ask(key[0], "show", target, {"model": key[1]}))
            running = await _ask(key[0], "ps", target)
        except Exception as error:  # any error of the HTTP library, or of a malformed answer
            _log.info("Ollama said nothing of %s: %r", target.model, error)
            running = {}
        for each in objects(running.get("models")):
            window = count(each.get("context_length"))
            if window and each.get("name") in (key[1], f"{key[1]}:latest"):
                self._loaded[key] = window
        shown = self._shown.get(key)
        if shown is None or (loaded := self._loaded.get(key)) is None:
            return shown
        return ModelInfo(loaded, shown.takes_images, shown.thought_levels)


async def _ask(
    address: str, what: str, target: Target, body: Mapping[str, str] | None = None
) -> dict[str, Any]:
    http = await http_connection.client()
    headers = {"authorization": f"Bearer {target.key}"} if target.key else {}
    url = f"{address}/api/{what}"
    if body is None:
        response = await http.get(url, headers=headers)
    else:
        response = await http.post(url, headers=headers, json=body)
    response.raise_for_status()
    answer = response.json()
    if not isinstance(answer, dict):
        raise TypeError(f"/api/{what} answered {type(answer)}")
    return answer


def _shown(answer: Mapping[str, Any]) -> ModelInfo:
    """Parses the answer to `/api/show` (github.com/ollama/ollama, docs/api.md)."""
    about = members(answer.get("model_info"))
    own = next((n for name, n in about.items() if name.endswith(".context_length")), None)
    set_to = _NUM_CTX.search(words(answer.get("parameters")))
    can = answer.get("capabilities")
    named = can if isinstance(can, list) else [can]
    return ModelInfo(
        window=count(set_to[1] if set_to else own) or None,
        takes_images="vision" in named,
        thought_levels=_LEVELS if "thinking" in named else (),
    )
