"""Reads the limits of an account as agents report them. No I/O.

The form is of a proposal, which may change: ACP's RFD "Quotas and Limits" of 2026-10-06, in neither
version of the protocol yet. What is not reported is absent, never 0. What can't be read is left out
and hides nothing else. Plain numbers with a `unit` are read as well as the proposal's quantities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from acp_bridge.core.protocol import Json, as_object, objects

#: the columns of what is shown: a pool, a plan say, and one measurement of it.
HEAD: Final = ("POOL", "STATE", "METER", "USED", "LIMIT", "LEFT", "RESETS", "STATUS")
#: members of an error's `data` that only a request which met a limit has.
_OF_LIMIT: Final = ("poolId", "meterId", "resetsAt", "retryAfter")
#: an ISO 8601 duration, without the years and months that have no fixed length.
_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>[\d.]+)W)?(?:(?P<days>[\d.]+)D)?"
    r"(?:T(?:(?P<hours>[\d.]+)H)?(?:(?P<minutes>[\d.]+)M)?(?:(?P<seconds>[\d.]+)S)?)?"
)
#: numbers and years above these are no amounts and no times.
_MOST, _LAST_YEAR = 10**15, 9000
#: the known values of a pool's `state` and of a meter's `status`.
_STATES: Final = ("available", "exhausted", "not_enabled", "not_permitted", "not_eligible")
_STATUSES: Final = ("ok", "warning", "exceeded")


def rows(snapshot: Json) -> list[list[str]]:
    """Return a row with the columns of `HEAD` for each meter of each pool, in the agent's order.

    A pool without meters has one row. A cell is empty for what the agent does not report.
    """
    found = []
    for pool in objects(snapshot.get("pools")):
        about = [_name(pool), _one_of(pool.get("state"), _STATES, "unavailable")]
        found += [[*about, *_meter(each)] for each in objects(pool.get("meters")) or [{}]]
    return found


def _meter(told: Json) -> list[str]:
    used, limit, left = (_quantity(told, name) for name in ("used", "limit", "remaining"))
    if percent := _number(told.get("usedPercent")):
        used = f"{used} ({percent} %)" if used else f"{percent} %"
    status = _one_of(told.get("status"), _STATUSES, "unknown")
    return [_name(told), used, limit, left, local(told.get("resetsAt")), status]


def _name(told: Json) -> str:
    return next(
        (each for n in ("label", "id") if isinstance(each := told.get(n), str) and each), ""
    )


def _quantity(told: Json, name: str) -> str:
    """Return an amount with its unit; "" if there is none."""
    amount = told.get(name)
    holder = amount if isinstance(amount, dict) else {"value": amount, "unit": told.get("unit")}
    value, unit = holder.get("value"), holder.get("unit")
    number = value if isinstance(value, str) else _number(value)
    return f"{number} {unit}" if number and isinstance(unit, str) and unit else number


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        return ""
    return f"{value}".removesuffix(".0")


def _one_of(value: object, known: Sequence[str], other: str) -> str:
    """Return a known value in words, and `other` for an unknown one; "" if there is none."""
    if not isinstance(value, str):
        return ""
    return value.replace("_", " ") if value in known else other


def local(told: object) -> str:
    """Return a time of a snapshot as the user's clock shows it; "" if there is none."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}" if (at := _moment(told)) else ""


def _moment(told: object) -> datetime | None:
    """Return a time as RFC 3339 has it; None for anything else."""
    try:
        found = datetime.fromisoformat(told) if isinstance(told, str) else None
    except ValueError:
        return None
    return found if found and found.tzinfo and 1970 < found.year < _LAST_YEAR else None


def is_older(snapshot: Json, than: Json | None) -> bool:
    """Return True if both snapshots have a time and the first is the older one."""
    mine, other = _moment(snapshot.get("updatedAt")), _moment(as_object(than).get("updatedAt"))
    return mine is not None and other is not None and mine < other


def tells_limit(data: object) -> bool:
    """Return True for the `data` of an error of a request that met a limit, of any agent."""
    told = as_object(data)
    return any(isinstance(told.get(name), str) and told[name] for name in _OF_LIMIT)


def reset_of(data: object, now: float) -> float | None:
    """Return when the limit resets that an error tells of, in seconds since 1970, or None.

    `now`: the time since 1970, to which a `retryAfter` is added.
    """
    told = as_object(data)
    if at := _moment(told.get("resetsAt")):
        return at.timestamp()
    after = told.get("retryAfter")
    found = _DURATION.fullmatch(after) if isinstance(after, str) else None
    parts = {unit: part for unit, part in found.groupdict().items() if part} if found else {}
    try:
        wait = timedelta(**{unit: float(part) for unit, part in parts.items()})
    except (ValueError, OverflowError):
        return None
    return now + wait.total_seconds() if parts else None
