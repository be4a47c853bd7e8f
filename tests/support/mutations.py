"""JSON as other people's servers spoil it: a member is dropped, null, cut, doubled, another type,
or in another place.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

#: what may stand where something else was expected
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0, 7, -1, 1.5, "", "x", "7", [], {}, [None], ["x"], {"x": 1}, 10**30),
    *([{"type": "x"}], {"type": "text"}, float("inf"), "\ufffd"),
)
_OPERATIONS = ("drop", "null", "other", "cut", "double", "swap")


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the way to each member and element of a value."""
    found: list[tuple[Any, ...]] = []
    named: Any = ()
    if isinstance(value, dict):
        named = value.items()
    elif isinstance(value, list):
        named = enumerate(value)
    for name, inner in named:
        found += [(*at, name), *places(inner, (*at, name))]
    return found


@st.composite
def spoiled(draw: st.DrawFn, recordings: list[Any]) -> Any:
    """One of the recordings, with up to four members spoiled."""
    value = deepcopy(draw(st.sampled_from(recordings)))
    for _ in range(draw(st.integers(0, 4))):
        if ways := places(value):
            _spoil(draw, value, draw(st.sampled_from(ways)))
    return value


def _spoil(draw: st.DrawFn, value: Any, way: tuple[Any, ...]) -> None:
    inside = value
    for name in way[:-1]:
        inside = inside[name]
    name = way[-1]
    match draw(st.sampled_from(_OPERATIONS)):
        case "drop":
            del inside[name]
        case "null":
            inside[name] = None
        case "cut" if isinstance(inside[name], str | list):
            inside[name] = inside[name][: draw(st.integers(0, len(inside[name])))]
        case "double" if isinstance(inside, list):
            inside.insert(name, deepcopy(inside[name]))
        case "swap" if isinstance(inside, list):
            other = draw(st.integers(0, len(inside) - 1))
            inside[name], inside[other] = inside[other], inside[name]
        case _:
            inside[name] = deepcopy(draw(st.sampled_from(OTHERS)))
