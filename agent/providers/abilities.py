"""What a model can do, by the user's word, its server, its refusals or LiteLLM's map.

Invariants
- A window that a provider named when it refused an input counts from then on, in the whole process.
- What the user declares wins over LiteLLM's map, and a refusal over what the user declares.
"""

from __future__ import annotations

import anyio
from anyio import to_thread
from msgspec import Struct

from acp_bridge.core.records import replace
from agent.model import THOUGHT_LEVELS, ModelInfo
from agent.providers import library, ollama
from agent.providers.outgoing import Target

#: providers whose models all take images. For others it must be in LiteLLM's map, because a model
#: that refuses one image refuses the whole conversation from then on
_ALL_SEE = frozenset(["anthropic", "gemini", "openai"])
#: seconds for a server on the user's own machine to say what its model can do
_INFO_SECONDS = 3.0
#: the levels of a declared `thinking` that names none
_USUAL_LEVELS = ("low", "medium", "high")
_TRUTHS = {"": True, "yes": True, "no": False}


class Declared(Struct, frozen=True):
    """What the user declares of a model; None for what they leave out."""

    #: tokens
    window: int | None = None
    images: bool | None = None
    #: thought levels, weakest first; empty if it has none
    thinking: tuple[str, ...] | None = None


NOTHING = Declared()


class Abilities:
    """What is known of all models.

    `declared`: the setting ACP_BRIDGE_MODEL_ABILITIES, in the form `MODEL window=TOKENS images[=no]
    thinking[=LEVEL,LEVEL...]`, several separated by `;`. Raises ValueError if it is malformed.
    """

    def __init__(self, declared: str = "") -> None:
        self._declared = dict(_declaration(part) for part in declared.split(";") if part.strip())
        self._ollama = ollama.Ollama()
        #: the window in tokens that a provider named, by the model's id and its base URL
        self._learnt: dict[tuple[str, str | None], int] = {}

    def declared(self, model_id: str) -> Declared:
        return self._declared.get(model_id, NOTHING)

    def learn(self, model_id: str, base_url: str | None, window: int | None) -> None:
        """Notes the window that a provider named when it refused an input; None: it named none."""
        if window is not None:
            self._learnt[model_id, base_url] = window

    async def info(self, model_id: str, target: Target, *, own_server: bool) -> ModelInfo:
        """Returns a model's window, and whether it takes images and thinks, from all sources.

        `own_server`: the user has set another base URL.
        """
        known = await self._looked_up(target)
        if known is None:
            known = ModelInfo(takes_images=target.provider in _ALL_SEE and not own_server)
        said = self.declared(model_id)
        if said.images is not None:
            known = replace(known, takes_images=said.images)
        if said.thinking is not None:
            known = replace(known, thought_levels=said.thinking)
        window = known.window if said.window is None else said.window
        if (learnt := self._learnt.get((model_id, target.base_url))) is not None:
            window = learnt if said.window is None else min(learnt, said.window)
        return replace(known, window=window)

    async def _looked_up(self, target: Target) -> ModelInfo | None:
        if not library.is_loaded():
            return None  # LiteLLM is not asked about a model that its map lacks
        if target.provider not in ollama.PROVIDERS:
            return library.model_info(target.model, target.provider)
        with anyio.move_on_after(_INFO_SECONDS):
            return await self._ollama.info(target)
        return None


async def loaded() -> None:
    """Waits until LiteLLM is imported."""
    if not library.is_loaded():
        await to_thread.run_sync(library.load, abandon_on_cancel=True)


def _declaration(text: str) -> tuple[str, Declared]:
    model_id, *words = text.split()
    said = NOTHING
    for word in words:
        name, _, value = word.partition("=")
        match name:
            case "window" if value.isdecimal() and int(value) > 0:
                said = replace(said, window=int(value))
            case "images" if value in _TRUTHS:
                said = replace(said, images=_TRUTHS[value])
            case "thinking":
                said = replace(said, thinking=_levels(value))
            case _:
                raise ValueError(f"ACP_BRIDGE_MODEL_ABILITIES: {word} of {model_id} makes no sense")
    return model_id, said


def _levels(value: str) -> tuple[str, ...]:
    if value in _TRUTHS:
        return _USUAL_LEVELS if _TRUTHS[value] else ()
    named = value.split(",")
    if unknown := [level for level in named if level not in THOUGHT_LEVELS]:
        raise ValueError(f"ACP_BRIDGE_MODEL_ABILITIES: there is no thought level {unknown[0]}")
    return tuple(level for level in THOUGHT_LEVELS if level in named)
