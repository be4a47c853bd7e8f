"""The session config options of ACP: the model, the mode and the thought level of a session.

Invariants
- A choice takes effect at the next model call or permission check; nothing is restarted.
- The last choice in the session, or else the model last announced in it, holds when it is opened
  again; then the command line, then the default. No model replaces another by itself.
- Listing the options waits for nothing. The thought levels of a model are known only once a library
  has been imported; `learn` waits for that, and they are offered from then on.
- A chosen thought level outlives a change of the model. A model without that level is called
  without one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from agent.errors import invalid_params
from agent.model import (
    DEMO,
    THOUGHT_LEVELS,
    Model,
    ModelChoice,
    ModelError,
    ModelInfo,
    Models,
)
from agent.turn.permissions import MODES, Mode, Permissions
from agent.wire_form import wire_form

logger = logging.getLogger(__name__)

#: the id of an option, which is also its category
OptionId = Literal["model", "mode", "thought_level"]
#: the thought level with which the model decides itself
DEFAULT_LEVEL = "default"

_UNKNOWN = (
    "this model is not in the list, and its provider is not known. For another model of a provider,"
    " name it PROVIDER/MODEL, such as openai/gpt-5.2. `acp-bridge --model` takes every model that"
    " LiteLLM knows"
)

ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean


class ConfigOptions:
    """The choices of one session. `keep` records each new one: the option's id and its value."""

    def __init__(
        self,
        models: Models,
        permissions: Permissions,
        keep: Callable[[str, str], None] = lambda option, value: None,
    ) -> None:
        self._models = models
        self._keep = keep
        self._permissions = permissions
        self._model_id = models.default
        #: True once the client has chosen a model
        self._chosen = False
        #: the id of the chosen model, if it turned out that no provider knows it; else None
        self._unknown: str | None = None
        self._level = DEFAULT_LEVEL
        self._infos: dict[str, ModelInfo] = {}

    # for the turn

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def stands_in(self) -> bool:
        """True while the demo answers because there is no key, not by the client's choice."""
        return self._model_id == DEMO and not self._chosen

    def leave_demo(self) -> str | None:
        """Replaces the demo by the default model if a key has come for one, and returns its id.

        Returns None if the session has another model, or the client has chosen the demo.
        """
        default = self._models.default if self.stands_in else DEMO
        if default == DEMO:
            return None
        self._model_id = default
        self._keep("model", default)
        return default

    def model(self) -> Model:
        """Returns the chosen model, with the chosen thought level if it has that one.

        Raises ModelError.
        """
        level = self._level if self._level in self._levels else None
        return self._models.open(self._model_id, level)

    async def info(self) -> ModelInfo:
        """Returns the chosen model's window and abilities; waits until its library is imported.

        Raises ModelError.
        """
        model_id = self._model_id
        known = self._infos[model_id] = await self._models.open(model_id).info()
        if self._unknown == model_id:
            self._unknown = None
        return known

    @property
    def known(self) -> ModelInfo | None:
        """The last result of `info` for the chosen model; None before the first."""
        return self._infos.get(self._model_id)

    async def learn(self) -> bool:
        """Looks up what the chosen model can do; returns True if that has changed the options."""
        levels = self._levels
        try:
            await self.info()
        except ModelError as error:
            self.note_failure(error)
            logger.info("nothing is known of the model yet", exc_info=error)
        except Exception as error:  # a prompt will report the problem, such as a missing key
            logger.info("nothing is known of the model yet", exc_info=error)
        return self._levels != levels

    # a model that no provider knows any more

    @property
    def unknown(self) -> str | None:
        """The id of the chosen model if it turned out that no provider knows it; else None."""
        return self._unknown if self._unknown == self._model_id else None

    def note_failure(self, error: ModelError) -> None:
        """Notes a failure of the chosen model; it may be that no provider knows it."""
        if error.kind == "unknown_model" and self._chosen:
            self._unknown = self._model_id

    def take_replaced(self) -> str | None:
        """Returns, and forgets, the id of an unknown model that the client replaced; or None."""
        if self._unknown is None or self._unknown == self._model_id:
            return None
        replaced, self._unknown = self._unknown, None
        return replaced

    # for the client

    def restore(self, chosen: Mapping[str, str]) -> None:
        """Restores the choices that were recorded in the session before it was opened again.

        Of the modes only `plan` is restored. One that asks less than `ask` is the user's word, and
        the record is none: whatever runs as the user may have written it. The bridge sets what the
        user chose again.
        """
        if (model_id := chosen.get("model")) is not None:
            self._model_id, self._chosen = model_id, True
        if chosen.get("mode") == "plan":
            self._permissions.mode = "plan"
        self._level = chosen.get("thought_level", self._level)

    def set(self, option: str, value: str | bool) -> None:
        """Sets the option with the id `option`.

        Raises RequestError, or ModelError if the model's key is missing; nothing is changed then.
        """
        match option:
            case "model":
                self._set_model(value)
            case "mode":
                self.set_mode(value)
            case "thought_level":
                self._set_level(value)
            case _:
                raise invalid_params("unknown configId")

    def set_mode(self, mode: str | bool) -> None:
        """Sets the mode. Raises RequestError if there is no such mode."""
        known = _mode(mode)
        if known is None:
            raise invalid_params("no such mode")
        self._permissions.mode = known
        self._keep("mode", known)

    def take_over(self, other: ConfigOptions) -> None:
        """Copies the choices of another session, so that its fork has no more rights than it."""
        self.set_mode(other.mode)
        self._model_id, self._chosen = other._model_id, other._chosen
        self._level = other._level
        self._infos |= other._infos

    def _set_model(self, model_id: str | bool) -> None:
        if self._chosen and model_id == self._model_id:
            # The bridge repeats the choice after a restart, when the model may be unreachable.
            return
        known = next((each.id for each in self._offered() if each.id == model_id), None)
        if known is None and isinstance(model_id, str) and self._models.takes(model_id):
            known = model_id
        if known is None:
            raise invalid_params(_UNKNOWN)
        self._models.open(known)
        self._model_id = known
        self._chosen = True
        self._keep("model", known)

    def _set_level(self, level: str | bool) -> None:
        # A level of another model is accepted: it was chosen for that one, and the bridge repeats
        # the choice after a restart.
        levels = (DEFAULT_LEVEL, *THOUGHT_LEVELS, *self._levels)
        known = next((each for each in levels if each == level), None)
        if known is None:
            raise invalid_params("no such thought level")
        self._level = known
        self._keep("thought_level", known)

    @property
    def mode(self) -> Mode:
        return self._permissions.mode

    def modes(self) -> SessionModeState:
        """Returns the modes, for clients without config options."""
        modes = [
            SessionMode(id=mode, name=name, description=description)
            for mode, (name, description) in MODES.items()
        ]
        return SessionModeState(current_mode_id=self.mode, available_modes=modes)

    def listed(self) -> list[ConfigOption]:
        """Returns the options as ACP lists them, each with its choices and the chosen one."""
        models = [(each.id, each.name, each.description) for each in self._offered()]
        modes = [(mode, name, description) for mode, (name, description) in MODES.items()]
        options: list[ConfigOption] = [
            select("model", "Model", self._model_id, models),
            select("mode", "Mode", self.mode, modes),
        ]
        if levels := self._levels:
            level = self._level if self._level in levels else DEFAULT_LEVEL
            own = [(each, each.capitalize(), None) for each in levels if each != DEFAULT_LEVEL]
            choices = [(DEFAULT_LEVEL, "Default", "As hard as the model does by itself"), *own]
            options.append(select("thought_level", "Thought level", level, choices))
        return options

    def update(self) -> dict[str, Any]:
        """Returns the session update that lists the options."""
        return {
            "sessionUpdate": "config_option_update",
            "configOptions": [wire_form(option) for option in self.listed()],
        }

    @property
    def _levels(self) -> tuple[str, ...]:
        info = self.known
        return info.thought_levels if info else ()

    def _offered(self) -> list[ModelChoice]:
        offered = list(self._models.offered())
        # The key of the chosen model may be gone.
        if all(each.id != self._model_id for each in offered):
            offered.append(ModelChoice(self._model_id, self._model_id))
        return offered


def _mode(name: str | bool | None) -> Mode | None:
    return next((each for each in MODES if each == name), None)


def select(
    option: OptionId,
    name: str,
    current: str,
    choices: Iterable[tuple[str, str, str | None]],
) -> SessionConfigOptionSelect:
    """Returns an option of the kind `select`; each choice is a value, a label and a description."""
    return SessionConfigOptionSelect(
        id=option,
        name=name,
        category=option,
        type="select",
        current_value=current,
        options=[
            SessionConfigSelectOption(value=value, name=label, description=description)
            for value, label, description in choices
        ],
    )
