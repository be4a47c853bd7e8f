"""Asks the built-in agent which keys it finds, and which model follows from them.

The bridge imports nothing of the agent, so a process of its own reports it (`agent.model_report`),
which is started as the agent is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.agents.handed_keys import handed_keys
from acp_bridge.core.protocol import Json

#: seconds for the report; it takes half a second on an idle machine.
_PATIENCE: Final = 20.0
#: seconds for a report with a request to the model, which has a bound of its own below this.
_ONLINE: Final = 90.0


class NoReport(Exception):
    """The agent could not be asked; the text says why."""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A variable for a key that has a value; `origin` is `environment` or `keys.env`."""

    name: str
    origin: str
    #: the value is the environment's, and the file has another one, which does not count.
    also_in_file: bool
    #: the variable holds the address of a provider and no key.
    is_address: bool
    provider: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """The built-in agent's report on its keys and its model; docs/commands.md says more."""

    file: str
    #: the state of the file of keys: `missing`, `used`, `exposed` (others may read it), `refused`
    #: or `unreadable`.
    file_use: str
    #: the numbers of lines that give no variable a value.
    unread_lines: tuple[int, ...]
    keys: tuple[FoundKey, ...]
    model: str
    #: the model was named by the user, and does not follow from the keys.
    named: bool
    #: why the model can't be used, if that is known.
    problem: str | None
    #: how many models are offered.
    models: int
    #: the version of LiteLLM; None if it is not installed.
    litellm: str | None
    #: how the request to the model went, if one was sent: `ms` or `problem`.
    online: Json | None


async def report(home: Path, model: str | None, *, online: bool = False) -> Report:
    """Return the agent's report on a data folder and this environment. Raises NoReport.

    `model`: the user's choice, None for none. With `online`, the model that the agent would use is
    sent one short request.
    """
    command = [sys.executable, "-I", "-m", "agent.model_report", "--home", str(home)]
    command += ["--model", model] if model is not None else []
    command += ["--online"] if online else []
    return _read(await _output(command, _ONLINE if online else _PATIENCE))


async def _output(command: Sequence[str], within: float) -> bytes:
    try:
        with anyio.fail_after(within), handed_keys(os.environ) as (env, kept):
            run = await anyio.run_process(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                env=env,
                pass_fds=kept,
            )
    except TimeoutError:
        raise NoReport(
            f"the built-in agent has not said within {within:g} s what it finds"
        ) from None
    except OSError as error:
        raise NoReport(
            f"the built-in agent can't be started: {os.strerror(error.errno or 0)}"
        ) from None
    if run.returncode:
        raise NoReport("the built-in agent can't be started: is acp-bridge installed whole?")
    return run.stdout


def _read(output: bytes) -> Report:
    try:
        found = json.loads(output)
        if "error" in found:
            raise NoReport(str(found["error"]))
        keys = [
            FoundKey(key["name"], key["from"], key["alsoInFile"], key["address"], key["provider"])
            for key in found["keys"]
        ]
        return Report(
            file=found["file"],
            file_use=found["fileUse"],
            unread_lines=tuple(found["unreadLines"]),
            keys=tuple(keys),
            model=found["model"],
            named=found["named"],
            problem=found["problem"],
            models=len(found["models"]),
            litellm=found["litellm"],
            online=found.get("online"),
        )
    except (ValueError, TypeError, KeyError):
        raise NoReport("what the built-in agent says of its keys can't be read") from None


def troubles(report: Report) -> list[str]:
    """Return what is wrong with the file of keys, in sentences that say what to do."""
    found = []
    match report.file_use:
        case "exposed":
            found.append(f"others may read {report.file}: run chmod 600 on it")
        case "refused":
            found.append(
                f"{report.file} is not used, since others may write it: look if every line is"
                " yours, then run chmod 600 on it"
            )
        case "unreadable":
            found.append(f"{report.file} can't be read: it must be a text file in UTF-8, and yours")
    if report.unread_lines:
        numbers = ", ".join(map(str, report.unread_lines[:10]))
        found.append(
            f"in {report.file} these lines give no variable a value: {numbers}; a line is"
            " NAME=value, with NAME in capitals"
        )
    found += [
        f"{key.name} is in the environment and in {report.file}: that of the environment counts"
        for key in report.keys
        if key.also_in_file
    ]
    return found
