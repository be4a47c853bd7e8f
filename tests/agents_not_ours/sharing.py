"""`make test-agents ARGS=--sharing`: several sessions in one process of the agent.

Alone an agent has all its sessions in one process. Behind the bridge they share one while they are
at rest, and no process runs the turns of two. Each trial looks whether one session disturbs another
one; the figures tell what a further session takes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from acp_bridge.core.agents.known_agents import known_agents
from acp_bridge.core.records import replace
from tests.agent.mcp_servers.support import odd
from tests.agents_not_ours.agents import AGENTS, FAST_AGENT, AgentNotOurs
from tests.agents_not_ours.trials import (
    OK,
    PATIENCE,
    SKIPPED,
    Stand,
    counted,
    place,
    stop_of,
    tried,
)
from tests.support.client import RecordingClient
from tests.support.joined import joined, listening
from tests.support.processes import children, descendants

SHARING: tuple[AgentNotOurs, ...] = (*AGENTS, FAST_AGENT)
_NOTICE = "[acp-bridge]"
#: of a start that takes long, which is no trouble.
_STARTS = re.compile(r"\[acp-bridge\] `[^`]+` is starting\.")


def words(text: str) -> list[str]:
    """The words that the model has counted."""
    return re.findall(r"[A-Z]+\d+", text)


def _but(text: str) -> str:
    found = words(text)
    return f"{len(found)} words, {' '.join([*found[:3], '...', *found[-2:]])}"


@dataclass
class Two:
    """One client of one agent, with sessions that each have a folder, and an MCP server if so."""

    stand: Stand
    client: RecordingClient
    ids: list[str]
    served: bool

    def folder(self, number: int) -> Path:
        return self.stand.home / f"folder{number}"

    async def add(self, folder: Path | None = None) -> str:
        number = len(self.ids)
        folder = folder or self.folder(number)
        folder.mkdir(exist_ok=True)
        servers = [odd(f"server{number}")] if self.served else []
        self.ids.append(await self.client.new_session(folder, PATIENCE, mcpServers=servers))
        return self.ids[-1]

    async def says(self, number: int, tag: str, count: int = 3) -> str | None:
        """What is wrong with one prompt of a session."""
        mark = self.client.mark()
        sent = self.client.send_prompt(f"COUNT {count} 0 {tag}", self.ids[number])
        return await self.ends(number, sent, tag, count, mark)

    async def ends(self, number: int, sent: Any, tag: str, count: int, mark: int) -> str | None:
        """What is wrong with the answer to a prompt, or with the words since then."""
        stopped = stop_of(await self.client.answer_to(sent, within=PATIENCE))
        text = self.client.text(self.ids[number], since=mark)
        if stopped != "end_turn":
            return f"{tag}: {stopped}"
        if _NOTICE in (said := _STARTS.sub("", text)):
            return f"{tag}: {said[said.index(_NOTICE) :][:120]}"
        return None if words(text) == words(counted(tag, count)) else f"{tag}: {_but(text)}"

    @property
    def processes(self) -> int:
        """Processes of the agent."""
        assert self.client.process is not None
        pid = self.client.process.pid
        return len(children(pid)) if self.stand.bridged else 1

    def remembers(self, tag: str, earlier: str) -> bool:
        return f" {earlier}" in self.stand.server.given_for(tag)


@asynccontextmanager
async def sessions(
    stand: Stand,
    count: int = 2,
    *,
    one_folder: bool = False,
    apart: bool = False,
    served: bool = False,
) -> AsyncIterator[Two]:
    """Start an agent with so many sessions, each after a first turn.

    `apart`: behind the bridge each has a process. `served`: each has an MCP server.
    """
    more = {"ACP_BRIDGE_PROCESS_PER_SESSION": "on"} if apart else {}
    async with stand.start(**more) as client:
        await client.initialize(within=PATIENCE)
        two = Two(stand, client, [], served)
        for number in range(count):
            await two.add(stand.home if one_folder else None)
            if wrong := await two.says(number, f"FIRST{chr(65 + number)}"):
                raise AssertionError(wrong)
        yield two


async def _at_once(stand: Stand, two: Two, tags: Sequence[str] = ("AA", "BB")) -> list[str]:
    """What is wrong with two prompts at once."""
    mark = two.client.mark()
    count = 100
    sent = [
        two.client.send_prompt(f"COUNT {count} 10 {tag}", session_id)
        for tag, session_id in zip(tags, two.ids, strict=False)
    ]
    wrong = []
    for number, (tag, each) in enumerate(zip(tags, sent, strict=True)):
        if found := await two.ends(number, each, tag, count, mark):
            wrong.append(found)
        if not two.remembers(tag, f"FIRST{chr(65 + number)}"):
            wrong.append(f"{tag}: first turn not remembered")
    return wrong


def _expected(stand: Stand, prompted: int) -> int:
    """The processes for so many sessions at rest that had a prompt."""
    return prompted if stand.bridged and _shares_fresh(stand) else 1


def _shares_fresh(stand: Stand) -> bool:
    """Whether its sessions share until their first prompt only."""
    program = (stand.agent.program,)
    return any(each.command[:1] == program and each.sharing == "fresh" for each in known_agents())


async def together(stand: Stand) -> str:
    """Two prompts at once, twice, in two folders: whole, in order, in their session, remembered."""
    async with sessions(stand) as two:
        if two.processes != _expected(stand, 2):
            return f"{two.processes} processes"
        wrong = await _at_once(stand, two)
        wrong += await _at_once(stand, two, ("CC", "DD"))
        if stand.bridged and two.processes != 2:
            wrong.append(f"then {two.processes} processes")
        return ", ".join(wrong) or OK


async def in_one_folder(stand: Stand) -> str:
    """The same in one folder."""
    async with sessions(stand, one_folder=True) as two:
        wrong = await _at_once(stand, two)
        wrong += await _at_once(stand, two, ("CC", "DD"))
        return ", ".join(wrong) or OK


async def folders(stand: Stand) -> str:
    """A command of each is run in its folder, one behind the other and both at once."""
    script = stand.home / "where"
    script.write_text('#!/bin/sh\npwd >> "$1"\n')
    script.chmod(0o755)
    async with sessions(stand) as two:
        two.client.side.permission = "allow"
        orders = [f"RUN {script} {stand.home}/where{number} END" for number in range(2)]
        for order, session_id in zip(orders, two.ids, strict=True):
            await two.client.prompt(order, session_id, PATIENCE)
        sent = [
            two.client.send_prompt(order, session_id)
            for order, session_id in zip(orders, two.ids, strict=True)
        ]
        for each in sent:
            await two.client.answer_to(each, within=PATIENCE)
        found = []
        for number in range(2):
            file = stand.home / f"where{number}"
            lines = file.read_text().split() if file.exists() else []
            if lines != [str(two.folder(number))] * 2:
                found.append(f"of {number} in {lines}")
        return ", ".join(found) or OK


async def servers(stand: Stand) -> str:
    """Each has the tools of its MCP server alone, before and after both had a turn at once."""
    async with sessions(stand, served=True) as two:
        two.client.side.permission = "allow"
        wrong = []
        for tags in (("FIRSTA", "FIRSTB"), ("EE", "FF")):
            for number, tag in enumerate(tags):
                for of in range(2):
                    if stand.server.offers(tag, f"server{of}") != (number == of):
                        lacks = "lacks" if number == of else "has"
                        wrong.append(f"{tag}: {number} {lacks} tools of {of}")
            for number, session_id in enumerate(two.ids):
                mark = two.client.mark()
                await two.client.prompt(f"USE server{number} END", session_id, PATIENCE)
                if "completed" not in str(two.client.updates(session_id, mark)):
                    wrong.append(f"tool of {number} did not run")
            if tags[0] == "FIRSTA":
                wrong += await _at_once(stand, two)
                for number, tag in enumerate(("EE", "FF")):
                    if found := await two.says(number, tag):
                        wrong.append(found)
        return ", ".join(wrong) or OK


async def stop(stand: Stand) -> str:
    """A Stop in one, running or at rest, leaves the other's turn alone."""
    async with sessions(stand) as two:
        mark = two.client.mark()
        sent = two.client.send_prompt("COUNT 100 20 AA", two.ids[0])
        await two.client.until_text("AA3", since=mark, within=PATIENCE)
        two.client.cancel(two.ids[1])
        wrong = [found] if (found := await two.ends(0, sent, "AA", 100, mark)) else []
        mark = two.client.mark()
        sent = two.client.send_prompt("COUNT 300 20 BB", two.ids[0])
        stopped = two.client.send_prompt("COUNT 1000 200 XX", two.ids[1])
        await two.client.until_text("BB3", since=mark, within=PATIENCE)
        await two.client.until_text("XX3", since=mark, within=PATIENCE)
        two.client.cancel(two.ids[1])
        how = stop_of(await two.client.answer_to(stopped, within=PATIENCE))
        if how != "cancelled":
            wrong.append(f"the stopped one: {how}")
        if found := await two.ends(0, sent, "BB", 300, mark):
            wrong.append(found)
        for number, tag in enumerate(("CC", "DD")):
            if found := await two.says(number, tag):
                wrong.append(found)
        return ", ".join(wrong) or OK


async def killed(stand: Stand) -> str:
    """`kill -9` in the turn of one of five: the others are told nothing, and remember."""
    if not stand.bridged:
        return f"{SKIPPED}all sessions end with it"
    async with sessions(stand, 5) as five:
        if five.processes != _expected(stand, 5):
            return f"{five.processes} processes"
        mark = five.client.mark()
        sent = five.client.send_prompt("COUNT 1000 20 KK", five.ids[0])
        await five.client.until_text("KK3", since=mark, within=PATIENCE)
        seen = five.client.mark()
        stand.signal(five.client, signal.SIGKILL)
        if "error" not in await five.client.answer_to(sent, within=PATIENCE):
            return "no error"
        await anyio.sleep(2)
        told = [
            message["params"]
            for message in five.client.recording.incoming(seen)
            if message.get("params", {}).get("sessionId") in five.ids[1:]
        ]
        wrong = [f"told: {str(each)[:80]}" for each in told]
        for number in (1, 2, 3, 4, 0):
            tag = f"NEXT{chr(65 + number)}"
            if found := await five.says(number, tag):
                wrong.append(found)
            if not five.remembers(tag, f"FIRST{chr(65 + number)}"):
                wrong.append(f"{tag}: first turn not remembered")
        return ", ".join(wrong) or OK


async def young(stand: Stand) -> str:
    """A session without a turn, and one right behind its first, work while another one runs."""
    async with sessions(stand, 1) as two:
        await two.add()
        mark = two.client.mark()
        running = two.client.send_prompt("COUNT 1000 20 RR", two.ids[0])
        await two.client.until_text("RR3", since=mark, within=PATIENCE)
        wrong = [found] if (found := await two.says(1, "FIRSTB")) else []
        if found := await two.says(1, "SECONDB"):
            wrong.append(found)
        if not two.remembers("SECONDB", "FIRSTB"):
            wrong.append("first turn not remembered")
        two.client.cancel(two.ids[0])
        await two.client.answer_to(running, within=PATIENCE)
        await two.add()
        if found := await two.says(2, "FIRSTC"):
            wrong.append(found)
        runs = [two.client.send_prompt("COUNT 1000 20 SS", each) for each in two.ids[:2]]
        if found := await two.says(2, "SECONDC"):
            wrong.append(found)
        if not two.remembers("SECONDC", "FIRSTC"):
            wrong.append("C: first turn not remembered")
        for each, run in zip(two.ids, runs, strict=False):
            two.client.cancel(each)
            await two.client.answer_to(run, within=PATIENCE)
        return ", ".join(wrong) or OK


async def always_apart(stand: Stand) -> str:
    """What is always allowed in one session is asked in another one, as with a process for each.

    Some agents keep it for the folder, on the disk: a process that starts later knows it.
    """
    if not stand.bridged:
        return OK if await _asks_elsewhere(stand) == (True, True) else "not asked in the folder"
    shared = await _asks_elsewhere(stand)
    home = stand.home / "apart"
    home.mkdir()
    apart = await _asks_elsewhere(replace(stand, home=home), apart=True)
    same = shared == apart or (_shares_fresh(stand) and shared[0])
    return OK if same else f"asked in another folder, in the same: {shared}, {apart}"


async def _asks_elsewhere(stand: Stand, *, apart: bool = False) -> tuple[bool, bool]:
    """Whether a second session asks: in another folder, and in the same one."""
    async with sessions(stand, apart=apart) as two:
        await two.add(two.folder(0))
        asked: list[str] = []

        def choose(params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params["sessionId"])
            kind = "allow_always" if params["sessionId"] == two.ids[0] else "allow_once"
            for option in params["options"]:
                if option["kind"] == kind:
                    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
            return {"outcome": {"outcome": "cancelled"}}

        two.client.side.handlers["session/request_permission"] = choose
        for number in (0, 0, 1, 2):
            await two.client.prompt(stand.order("one"), two.ids[number], PATIENCE)
        if asked.count(two.ids[0]) != 1:
            raise AssertionError(f"asked {asked.count(two.ids[0])} times")
        return two.ids[1] in asked, two.ids[2] in asked


async def modes(stand: Stand) -> str:
    """The modes of one session leave another one in its own: it still asks."""
    async with sessions(stand) as two:
        folder, client = stand.home / "folder2", two.client
        folder.mkdir()
        params = {"cwd": str(folder), "mcpServers": []}
        result = await client.request("session/new", params, PATIENCE)
        two.ids.append(result["sessionId"])
        offered = (result.get("modes") or {}).get("availableModes") or []
        if not offered:
            return f"{SKIPPED}has no modes"
        mark = client.mark()
        for mode in offered:
            chosen = {"sessionId": two.ids[2], "modeId": mode["id"]}
            with suppress(Exception):
                await client.request("session/set_mode", chosen, PATIENCE)
        asked: list[str] = []

        def choose(params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params["sessionId"])
            return {"outcome": {"outcome": "cancelled"}}

        client.side.handlers["session/request_permission"] = choose
        await client.prompt(stand.order("one"), two.ids[0], PATIENCE)
        kinds: set[str] = {each["sessionUpdate"] for each in client.updates(two.ids[0], mark)}
        told = sorted(kinds & {"current_mode_update", "config_option_update"})
        if asked != two.ids[:1] or stand.acted("one"):
            return f"asked {len(asked)} times, ran {stand.acted('one')} times"
        return f"told {', '.join(told)}" if told else OK


async def two_clients(stand: Stand) -> str:
    """A second client on the second session: both prompt at once, and see their own."""
    if not stand.bridged:
        return f"{SKIPPED}has one client"
    async with sessions(stand) as two:
        assert two.client.process is not None
        bridge = await listening(stand.home / "bridge", two.client.process.pid)
        async with joined(str(bridge.socket)) as other:
            await other.initialize(within=PATIENCE)
            await other.load_session(two.ids[1], two.folder(1), PATIENCE)
            marks = two.client.mark(), other.mark()
            sent = (
                two.client.send_prompt("COUNT 100 10 AA", two.ids[0]),
                other.send_prompt("COUNT 100 10 BB", two.ids[1]),
            )
            ends = [
                stop_of(await each.answer_to(request, within=PATIENCE))
                for each, request in zip((two.client, other), sent, strict=True)
            ]
            await two.client.until_text("BB99", since=marks[0], within=PATIENCE)
            seen = (
                words(two.client.text(two.ids[0], marks[0])),
                words(two.client.text(two.ids[1], marks[0])),
                words(other.text(two.ids[1], marks[1])),
                words(other.text(two.ids[0], marks[1])),
            )
        wanted = [words(counted(tag, 100)) for tag in ("AA", "BB", "BB")]
        if ends != ["end_turn"] * 2 or list(seen) != [*wanted, []]:
            return f"{ends}, shown {[(len(each), each[:2]) for each in seen]}"
        return OK


# --- figures --------------------------------------------------------------------------------------


def pss_mb(pid: int) -> float:
    """Memory of a process and all below it, what it shares divided among those that share it."""
    total = 0
    for each in (pid, *descendants(pid)):
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


@dataclass
class Taken:
    """What the sessions of one arrangement have taken."""

    client: RecordingClient
    bridged: bool
    ids: list[str] = field(default_factory=list)
    took: list[float] = field(default_factory=list)  #: milliseconds
    memory: list[float] = field(default_factory=list)  #: MB, after each

    @property
    def pid(self) -> int:
        assert self.client.process is not None
        return self.client.process.pid

    async def add(self, folder: Path) -> None:
        began = time.perf_counter()
        self.ids.append(await self.client.new_session(folder, PATIENCE))
        self.took.append((time.perf_counter() - began) * 1000)

    async def two_run(self) -> int:
        """Processes of the agent while two sessions have a turn."""
        mark = self.client.mark()
        for each, tag in zip(self.ids[3:5], ("AA", "BB"), strict=True):
            self.client.send_prompt(f"COUNT 1000 20 {tag}", each)
        for tag in ("AA", "BB"):
            await self.client.until_text(f"{tag}9 ", since=mark, within=PATIENCE)
        processes = len(children(self.pid)) if self.bridged else 1
        for each in self.ids[3:5]:
            self.client.cancel(each)
        return processes


async def figures(stand: Stand) -> str:
    """A further `session/new` and its memory, alone and behind in turn; processes of ten."""
    if not stand.bridged:
        return f"{SKIPPED}measured with those behind"
    apart = stand.home / "alone"
    apart.mkdir()
    alone = replace(stand, bridged=False, home=apart)
    async with alone.start() as one, stand.start() as other:
        each = (Taken(one, False), Taken(other, True))
        for taken in each:
            await taken.client.initialize(within=PATIENCE)
        for number in range(10):
            folder = stand.home / f"folder{number}"
            folder.mkdir()
            for taken in each:
                await taken.add(folder)
            await anyio.sleep(1)
            for taken in each:
                taken.memory.append(pss_mb(taken.pid))
        processes = await each[1].two_run()
    further = [median(taken.took[1:]) for taken in each]
    added = [median(b - a for a, b in pairwise(taken.memory[1:])) for taken in each]
    return (
        f"first {each[0].took[0]:.0f}, {each[1].took[0]:.0f} ms; further {further[0]:.0f}, "
        f"{further[1]:.0f} ms (least {min(each[0].took):.0f}, {min(each[1].took):.0f}); adds "
        f"{added[0]:.1f}, {added[1]:.1f} MB (all {each[0].memory[-1]:.0f}, "
        f"{each[1].memory[-1]:.0f} MB); ten sessions, two running: {processes} processes"
    )


TRIALS: dict[str, Callable[[Stand], Awaitable[str]]] = {
    "two prompts at once": together,
    "the same in one folder": in_one_folder,
    "each in its folder": folders,
    "each its MCP servers": servers,
    "a Stop in one": stop,
    "`kill -9` beside four at rest": killed,
    "moved before and behind its first turn": young,
    "always allowed in one": always_apart,
    "the mode of one": modes,
    "two clients": two_clients,
    "figures": figures,
}


def run(agents: Sequence[AgentNotOurs]) -> list[str]:
    """Play each trial with each agent, alone and behind; returns the results behind."""
    results = []
    only = os.environ.get("TRIAL", "")
    for agent in agents:
        if not (agent.package or shutil.which(agent.program)):
            print(f"{agent.name:10} {SKIPPED}not on the PATH")
            continue
        for name, trial in TRIALS.items():
            if only not in trial.__name__:
                continue
            for bridged in (False, True):
                with place() as (home, server):
                    result = anyio.run(tried, Stand(agent, bridged, home, server), trial)
                if bridged and trial is not figures:
                    results.append(result)
                where = "behind" if bridged else "alone"
                print(f"{agent.name:10} {where:6} {name:38} {result}", flush=True)
    sys.stdout.flush()
    return results
