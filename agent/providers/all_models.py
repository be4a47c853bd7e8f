"""Finds and opens models: prepared ones, and those that LiteLLM knows.

Invariants
- Keys are not remembered: a key that is set later is found when it is looked for the next time.
- A model that needs no LiteLLM never loads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from agent.key_help import key_help
from agent.model import DEMO, Model, ModelChoice, ModelError
from agent.providers.abilities import Abilities
from agent.providers.keys import Access, Keys, Look
from agent.providers.known_providers import PROVIDERS, Provider, provider_of, variables
from agent.providers.provider_model import ProviderModel, missing_key
from agent.scripted.dialogue import DialogueError, demo_dialogue, read_dialogue
from agent.scripted.scripted_model import ScriptedModel
from agent.settings import Settings

_SCRIPTED = "scripted:"
#: seconds without a byte after which a request to a provider fails, and the variable that sets
#: them; a model on the user's own machine may need more before its first token
_SILENCE_VARIABLE, _SILENCE = "ACP_BRIDGE_MODEL_SILENCE", 120.0


class AllModels:
    """All models that can be used.

    `env`: where keys, base URLs and ACP_BRIDGE_MODEL_SILENCE (seconds) are looked for first, then
    in the settings' file of keys; None: the process's environment. `on_key` is called with every
    key that is found. `mask` removes secrets from a provider's words. Raises ValueError if the
    declared abilities are malformed.
    """

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str] | None = None,
        on_key: Callable[[str], None] | None = None,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._settings = settings
        self._abilities = Abilities(settings.abilities)
        self._mask = mask
        self._keys = Keys(settings.keys_file, os.environ if env is None else env, on_key)

    @property
    def default(self) -> str:
        return self._default(self._keys.look())

    def offered(self) -> Sequence[ModelChoice]:
        look = self._keys.look()
        named = (self._default(look), *self._settings.models, *_curated(look))
        return [self._choice(id) for id in dict.fromkeys(named)]

    def takes(self, model_id: str) -> bool:
        prefix, slash, name = model_id.partition("/")
        if model_id != model_id.strip() or (slash and not name) or " " in model_id:
            return False
        if model_id == DEMO or provider_of(model_id) is not None:
            return True
        # LiteLLM may know the provider of a key that the user has
        named = bool(prefix and slash) and prefix.isidentifier()
        return named and self._keys.look().key(variables(prefix)) is not None

    def need_library(self) -> bool:
        """Returns True if the default model, or another that the user named, needs LiteLLM.

        With a prepared model as default it is False: LiteLLM waits until another is chosen. Raises
        ModelError if the default model has no key.
        """
        found = [self.open(self.default)]
        if not isinstance(found[0], ProviderModel):
            return False
        for id in (*self._settings.models, self._settings.summary_model or DEMO):
            with suppress(ModelError):
                found.append(self.open(id))
        return any(isinstance(each, ProviderModel) and each.needs_library for each in found)

    async def warm(self) -> None:
        try:
            model = self.open(self.default)
            if isinstance(model, ProviderModel):
                await model.warm()
        except ModelError:
            pass  # a prompt will report it

    def open(self, model_id: str, thought_level: str | None = None) -> Model:
        if model_id == DEMO:
            return ScriptedModel(demo_dialogue(), DEMO)
        if model_id.startswith(_SCRIPTED):
            return _scripted(model_id)
        look = self._keys.look()
        provider = provider_of(model_id)
        if provider and (access := look.access(provider)).lacks_key:
            raise missing_key(access)
        return ProviderModel(
            model_id,
            self._access,
            thought_level=thought_level,
            silence=_silence(look),
            abilities=self._abilities,
            mask=self._mask,
        )

    def _choice(self, id: str) -> ModelChoice:
        if id == DEMO:
            file = self._settings.keys_file
            how = f"Prepared answers. For a model put a key into {file}; no --model is needed."
            how = f"{how} {key_help(keys_file=file)}"
            return ModelChoice(id, "Demo (no model)", how)
        provider = provider_of(id)
        if provider is None:
            return ModelChoice(id, id)
        return ModelChoice(id, id.removeprefix(f"{provider.id}/"), provider.name)

    def _access(self, provider: str) -> Access:
        return self._keys.access(PROVIDERS.get(provider) or variables(provider))

    def _default(self, look: Look) -> str:
        return self._settings.model or next(self._usable(look), DEMO)

    def _usable(self, look: Look) -> Iterator[str]:
        """Yields the ids of the offered models that have what they need, such as a key."""
        for id in self._settings.models:
            provider = provider_of(id)
            if id.startswith((DEMO, _SCRIPTED)) or (provider and _has_key(provider, look)):
                yield id
        yield from _curated(look)


def _curated(look: Look) -> Iterator[str]:
    for provider in PROVIDERS.values():
        if provider.models and _has_key(provider, look):
            yield from (f"{provider.id}/{model}" for model in provider.models)


def _has_key(provider: Provider, look: Look) -> bool:
    return not provider.keys or look.key(provider) is not None


def _silence(look: Look) -> float:
    found = look.find([_SILENCE_VARIABLE])
    try:
        return max(1.0, float(found[1])) if found else _SILENCE
    except ValueError:
        return _SILENCE


def _scripted(model_id: str) -> Model:
    path = model_id.removeprefix(_SCRIPTED)
    try:
        return ScriptedModel(read_dialogue(path), model_id)
    except OSError as error:
        raise ModelError(f"The dialogue {path} can't be read.", "unknown_model") from error
    except DialogueError as error:
        raise ModelError(f"{path} is no dialogue: {error}.", "unknown_model") from error
