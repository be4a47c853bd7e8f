"""The session config options of ACP: the model, the mode and the thought level of a session.

Invariants
- A choice takes effect at the next model call or permission check; nothing is restarted.
- What was last chosen or announced in the session holds when it is opened again; then what the
  command line says, then the default. No model takes the place of another by itself.
- Listing the options waits for nothing. The thought levels of a model are known only once a library
  has been imported; `learn` waits for that, and they are offered from then on.
- A chosen thought level outlives a change of the model. A model that has no such level is asked
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
#: the thought level that leaves it to the model
DEFAULT_LEVEL = "default"

ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean


class ConfigOptions:
    """Holds the choices of one session. `keep` is called with each: the option's id, the value."""

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
        #: the id of a chosen model that nobody knows any more; None if there is none
        self._unknown: str | None = None
        self._level = DEFAULT_LEVEL
        self._infos: dict[str, ModelInfo] = {}

    # for the turn

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def stands_in(self) -> bool:
        """True while the demo answers for want of a key: the client did not choose it."""
        return self._model_id == DEMO and not self._chosen

    def leave_demo(self) -> str | None:
        """Takes the default model in place of the demo, if a key has come for one meanwhile.

        Returns its id; None if the session is not the demo's, or the client chose the demo.
        """
        default = self._models.default if self.stands_in else DEMO
        if default == DEMO:
            return None
        self._model_id = default
        self._keep("model", default)
        return default

    def model(self) -> Model:
        """Returns the model as it is chosen now. Raises ModelError."""
        level = self._level if self._level in self._levels else None
        return self._models.open(self._model_id, level)

    async def info(self) -> ModelInfo:
        """Returns what is known of the chosen model now, once its library is imported.

        Raises ModelError.
        """
        model_id = self._model_id
        known = self._infos[model_id] = await self._models.open(model_id).info()
        if self._unknown == model_id:
            self._unknown = None
        return known

    @property
    def known(self) -> ModelInfo | None:
        """The last result of `info`; None before the first."""
        return self._infos.get(self._model_id)

    async def learn(self) -> bool:
        """Looks the chosen model up and returns True if that has changed the options."""
        levels = self._levels
        try:
            await self.info()
        except ModelError as error:
            self.note_failure(error)
            logger.info("nothing is known of the model yet", exc_info=error)
        except Exception as error:  # a prompt will tell the problem, such as a missing key
            logger.info("nothing is known of the model yet", exc_info=error)
        return self._levels != levels

    # a model that is gone

    @property
    def unknown(self) -> str | None:
        """The id of the chosen model, if it was found that nobody knows it any more."""
        return self._unknown if self._unknown == self._model_id else None

    def note_failure(self, error: ModelError) -> None:
        """Notes that the chosen model was asked and failed so."""
        if error.kind == "unknown_model" and self._chosen:
            self._unknown = self._model_id

    def take_replaced(self) -> str | None:
        """Returns the unknown model in whose place another was chosen, once."""
        if self._unknown is None or self._unknown == self._model_id:
            return None
        replaced, self._unknown = self._unknown, None
        return replaced

    # for the client

    def restore(self, chosen: Mapping[str, str]) -> None:
        """Takes over what was chosen in the session before it was opened again.

        A mode that is not known leaves the one that allows least without asking.
        """
        if (model_id := chosen.get("model")) is not None:
            self._model_id, self._chosen = model_id, True
        self._permissions.mode = _mode(chosen.get("mode")) or self._permissions.mode
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
        """Raises RequestError."""
        known = _mode(mode)
        if known is None:
            raise invalid_params("no such mode")
        self._permissions.mode = known
        self._keep("mode", known)

    def take_over(self, other: ConfigOptions) -> None:
        """Takes the choices of another session, so that a fork of it has no more rights."""
        self.set_mode(other.mode)
        self._model_id, self._chosen = other._model_id, other._chosen
        self._level = other._level
        self._infos |= other._infos

    def _set_model(self, model_id: str | bool) -> None:
        if self._chosen and model_id == self._model_id:
            return  # the bridge sets it again after a restart, also one that can't be asked now
        known = next((each.id for each in self._offered() if each.id == model_id), None)
        if known is None:
            raise invalid_params("no such model")
        self._models.open(known)
        self._model_id = known
        self._chosen = True
        self._keep("model", known)

    def _set_level(self, level: str | bool) -> None:
        # A level that only another model has is taken too: it was chosen for that one, and the
        # bridge sets it again after a restart.
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
        """Returns the modes, for clients that know no config options."""
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
        """Returns the session update that tells the options."""
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
        # The key of the chosen model may have been taken away.
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
    """Returns an option with its choices: each a value, a label and a description."""
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
