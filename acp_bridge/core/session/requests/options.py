"""Reads modes, models and config options as agents tell them, and the requests that set them.

Nothing here trusts the form: what is no object, or has no id, is left out.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from acp_bridge.core.protocol import SET_CONFIG_OPTION, SET_MODE, SET_MODEL, Json, objects

#: the parameter that holds the value, by the method that sets it.
VALUE_KEYS: Final = {SET_MODE: "modeId", SET_MODEL: "modelId", SET_CONFIG_OPTION: "value"}
#: the method that sets the same as an option of this category.
BY_CATEGORY: Final = {"mode": SET_MODE, "model": SET_MODEL}
#: where a result tells the current value and those that can be set, and the name of one's id.
_PLACES: Final = {
    SET_MODE: ("modes", "currentModeId", "availableModes", "id"),
    SET_MODEL: ("models", "currentModelId", "availableModels", "modelId"),
}


class Option(Struct, frozen=True):
    """A config option as the agent tells it."""

    id: str
    value: object
    category: str
    #: the values that can be set; None if the agent names none.
    values: list[object] | None

    @property
    def params(self) -> Json:
        """The parameters of `session/set_config_option` without the session's id and the value."""
        boolean = {"type": "boolean"} if isinstance(self.value, bool) else {}
        return {"configId": self.id, **boolean}

    @property
    def kind(self) -> object:
        """The `kind` of a request that sets this option."""
        return SET_CONFIG_OPTION, self.id


def kind(method: str, params: Json) -> object:
    """Return the setting that a request sets, or None; a later one of this kind replaces it."""
    if method in BY_CATEGORY.values():
        return method
    if method == SET_CONFIG_OPTION and isinstance(params.get("configId"), str):
        return method, params["configId"]
    return None


def read(told: Json) -> list[Option]:
    """Return the options in the `configOptions` that an agent has told."""
    return [
        Option(each["id"], each.get("currentValue"), str(each.get("category")), _values(each))
        for each in objects(told.get("configOptions"))
        if isinstance(each.get("id"), str)
    ]


def values(told: Json) -> Json:
    """Return the current values of the options by their ids."""
    return {option.id: option.value for option in read(told)}


def of_category(told: Json, category: str) -> list[Option]:
    """Return the options of this category."""
    return [option for option in read(told) if option.category == category]


def available(told: Json, method: str) -> list[object] | None:
    """Return the values that `session/set_mode` or `set_model` may set; None if none is named."""
    place, _, listed, name = _PLACES[method]
    held = told.get(place)
    known = held.get(listed) if isinstance(held, dict) else None
    return [each.get(name) for each in objects(known)] if isinstance(known, list) else None


def current(told: Json, method: str, params: Json) -> object:
    """Return the value that an agent says to be in force for what this request sets, or None."""
    if method == SET_CONFIG_OPTION:
        return values(told).get(params.get("configId", ""))
    place, name, _, _ = _PLACES[method]
    held = told.get(place)
    return held.get(name) if isinstance(held, dict) else None


def _values(option: Json) -> list[object] | None:
    """Return the values of a select, grouped or not."""
    if not isinstance(option.get("options"), list):
        return None
    found: list[object] = []
    for each in objects(option["options"]):
        grouped = each.get("options")
        found += [one.get("value") for one in objects(grouped)] if grouped else [each.get("value")]
    return found
