"""`make test-agents ARGS=--day`: a day's work and a second day, and then what looks back at it.

Each agent edits with its own tools, runs a command, is resumed and works on when the clock of the
bridge is a day ahead. Then what `show --diff` tells is compared with git, `cost` with what the
model's server has counted; what was said is searched for, the traces are read by a reader that
shares no code with their writer, a session is exported, taken over and given back, and keys that
were planted are looked for where none may be.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.agent.mcp_servers.support import odd
from tests.agents_not_ours import trials
from tests.agents_not_ours.agents import AGENTS, AgentNotOurs
from tests.agents_not_ours.model_server import ModelServer
from tests.agents_not_ours.trials import OK, PATIENCE, Stand
from tests.agents_not_ours.versions import BUILT_IN
from tests.support.client import RecordingClient
from tests.support.model_replies import Call, Count, Json, Text
from tests.support.trace_reader import read_trace

WORKING: tuple[AgentNotOurs, ...] = (
    *(agent for agent in AGENTS if agent.name in ("codex", "opencode")),
    BUILT_IN,
)
#: planted where no trace has it.
_GIVEN = "sk-proj-planted0Given1Where2No3Trace4Looks"
#: said in a prompt, and one written into a file: keys of known forms.
_SAID = (
    "sk-ant-api03-planted0Said1In2A3Prompt4And5Kept6",
    "ghp_planted0Said1In2A3Prompt4And5Kept6ABCD",
    "github_pat_planted0Said1In2A3Prompt4And5Kept6",
    "glpat-planted0Said1In2A",
    "xoxb-planted0-Said1-In2A3Prompt",
    "AKIAPLANTED0SAID1IN2",
    "AIzaPlanted0Said1In2A3Prompt4And5Kept6ABC",
)
_ORDER = re.compile(r"EDIT (\S+) (\w+) (\w+) END|MAKE (\S+) (\S+) END")
_RESULT = re.compile(r'"function_call_output"|"role": "tool"')
#: prompts of `work`.
_PROMPTS = 8
#: dollars for a million tokens, in and out, where the agent tells costs.
_PRICES = {"opencode": (1.0, 2.0), "built-in": (2.5, 10.0)}
_LINES = "".join(f"n{number}\n" for number in range(20))
_TOMORROW = """\
import datetime, time
_now, _ahead = time.time, datetime.timedelta(days=1)
class _Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + _ahead
datetime.datetime = _Ahead
time.time = lambda: _now() + 86400
"""


class DayServer(ModelServer):
    """A model that also edits: `EDIT file line other END`, `MAKE file word END`."""

    def __init__(self) -> None:
        super().__init__()
        #: answers in turns: what is asked for a title has no tools.
        self.turns = 0

    def answer(self, body: Json) -> Iterator[Text | Call] | None:
        text = json.dumps(body.get("messages") or body.get("input"))
        tools = json.dumps(body.get("tools") or [])
        self.turns += tools != "[]"
        *_, last = [None, *re.finditer(r"(?:COUNT|RUN|EDIT|MAKE) [^\"]*", text)]
        order = _ORDER.match(last[0]) if last else None
        if last is None or order is None or tools == "[]":
            return super().answer(body)
        self.given.append(text)
        calls = _edit(order, set(re.findall(r'"name": "(\w+)"', tools)))
        done = len(_RESULT.findall(text, last.end()))
        if done >= len(calls):
            return iter([Text("EDITED0 ")])
        name, arguments = calls[done]
        return iter([Call(name, json.dumps(arguments), f"call_{next(self._calls)}")])


def _edit(order: re.Match[str], tools: set[str]) -> list[tuple[str, Json]]:
    """Return the calls of an agent's own tools for an order."""
    path, old, new, made, word = order.groups()
    file, text = path or made, f"{word}\nmore of {word}\n"
    if "edit_file" in tools:
        read: tuple[str, Json] = ("read_file", {"path": file})
        edit: tuple[str, Json] = ("edit_file", {"path": file, "old": f"{old}\n", "new": f"{new}\n"})
        return [read, edit] if path else [("write_file", {"path": file, "content": text})]
    if "exec_command" in tools:
        change = f"*** Update File: {file}\n@@\n-{old}\n+{new}\n"
        if made:
            change = f"*** Add File: {file}\n+{word}\n+more of {word}\n"
        patch = f"*** Begin Patch\n{change}*** End Patch"
        return [("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF"})]
    replaced = {"filePath": file, "oldString": f"{old}\n", "newString": f"{new}\n"}
    if path:
        return [("read", {"filePath": file}), ("edit", replaced)]
    return [("write", {"filePath": file, "content": text})]


@dataclass
class Day(Stand):
    """What one agent has done in two days, and what was found of it."""

    server: DayServer
    #: of each item.
    found: list[str] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    tomorrow: bool = False

    @asynccontextmanager
    async def at_work(self, data: Path | None = None) -> AsyncIterator[RecordingClient]:
        """A bridge in front of the agent, with a trace and, if that is named, another home."""
        words = self.agent.words()
        command = [sys.executable, "-m", "acp_bridge", *(["--", *words] if words else [])]
        self.traces.append(self.home / f"trace-{len(self.traces)}.jsons")
        env = {**self.environment, "ACP_BRIDGE_TRACE": str(self.traces[-1])}
        env["ACP_BRIDGE_HOME"] = str(data or self.home / "bridge")
        async with RecordingClient.start(command, env=env) as client:
            await client.initialize({}, within=PATIENCE)
            trials.choosing(client, *["allow_once"] * 30)
            yield client
            client.close_stdin()
            await client.wait(within=PATIENCE)

    @property
    def environment(self) -> dict[str, str]:
        """Of the agent and the bridge, with a planted key, and the clock of the second day."""
        env = {**self.env, "LOCAL_KEY": _GIVEN, "OPENAI_API_KEY": _GIVEN}
        if self.tomorrow:
            ahead = self.home / "ahead"
            ahead.mkdir(exist_ok=True)
            (ahead / "sitecustomize.py").write_text(_TOMORROW)
            env["PYTHONPATH"] = os.pathsep.join([str(ahead), os.environ.get("PYTHONPATH", "")])
        return env

    def project(self, name: str) -> Path:
        """A new folder of git's with two files."""
        folder = self.home / name
        folder.mkdir()
        for file in ("a.txt", "b.txt"):
            (folder / file).write_text(_LINES)
        by = ("-c", "user.name=day", "-c", "user.email=day@localhost")
        for words in (("init", "-q"), ("add", "."), (*by, "commit", "-qm", "begin")):
            subprocess.run(["git", *words], cwd=folder, check=True)
        return folder

    def command(self, *words: str, home: Path | None = None, folder: Path | None = None) -> str:
        """What a command of the bridge prints."""
        env = {**os.environ, **self.environment}
        env["ACP_BRIDGE_HOME"] = str(home or self.home / "bridge")
        done = subprocess.run(
            [sys.executable, "-m", "acp_bridge", *words],
            env=env,
            cwd=folder or self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else f"exit {done.returncode}: {done.stderr}"

    def note(self, item: str, command: str, wrong: object) -> None:
        """Note a finding; anything but "", 0 or an empty list is wrong."""
        result = OK if not wrong else str(wrong)[:400]
        self.found.append(result)
        print(f"| {self.agent.name} | {item} | `{command}` | {result} |", flush=True)


async def _asked(day: Day, client: RecordingClient, text: str) -> None:
    answer = await client.prompt(text, within=PATIENCE)
    assert answer["stopReason"] == "end_turn", answer


async def work(day: Day) -> None:
    """Two sessions on the first day, one of which goes on in another bridge, and on the second."""
    edited, ran = day.project("edited"), day.project("ran")
    async with day.at_work() as client:
        servers = [{**odd("bench"), "env": [{"name": "TOKEN", "value": _GIVEN}]}]
        first = await client.new_session(edited, PATIENCE, mcpServers=servers)
        await _asked(day, client, f"Who knows of zebras? {' '.join(_SAID)} COUNT 5 0 FIRST")
        await _asked(day, client, f"EDIT {edited}/a.txt n3 three END")
        await _asked(day, client, f"MAKE {edited}/new.txt {_SAID[0]} END")
        second = await client.new_session(ran, PATIENCE)
        await _asked(day, client, f"EDIT {ran}/a.txt n3 drei END")
        await _asked(day, client, f"RUN {day.act} {ran}/b.txt END")
    _compare(day, "edits by edit tools", first, edited)
    _compare_with_command(day, second, ran)
    async with day.at_work() as client:
        await client.load_session(first, edited, PATIENCE)
        await _asked(day, client, f"EDIT {edited}/a.txt n15 fifteen END")
    _compare(day, "the same after a resume", first, edited)
    today = day.server.turns
    _spent(day, "costs of the first day", {"all": today})
    day.tomorrow = True
    async with day.at_work() as client:
        await client.load_session(first, edited, PATIENCE)
        await _asked(day, client, f"EDIT {edited}/b.txt n7 seven END")
        await _asked(day, client, "COUNT 5 0 LAST")
    _compare(day, "the same on the second day", first, edited)
    _spent(day, "costs of both days", {"first": today, "second": day.server.turns - today})
    _searched(day, first, second)
    _traced(day)
    await _moved(day, first, edited)
    _kept_secret(day, first)


def _lines(patch: str) -> list[str]:
    """Return a patch without what git alone says, and comments."""
    lines = [re.sub(r"^(@@ .* @@).*", r"\1", line) for line in patch.splitlines()]
    return [line for line in lines if not line.startswith(("index ", "# "))]


def _differences(day: Day, session: str, folder: Path) -> tuple[str, list[str]]:
    ours = day.command("show", session, "--diff")
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    git = subprocess.run(
        ["git", "diff", "--cached"], cwd=folder, capture_output=True, text=True, check=True
    )
    theirs = _lines(git.stdout)
    return ours, [] if _lines(ours) == theirs else [*_lines(ours), "<>", *theirs]


def _compare(day: Day, item: str, session: str, folder: Path) -> None:
    ours, differs = _differences(day, session, folder)
    noted = [line for line in ours.splitlines() if line.startswith("# ")]
    day.note(f"{item}: as `git diff`", "show ID --diff", differs or noted)


def _compare_with_command(day: Day, session: str, folder: Path) -> None:
    """Of a file that a command has changed the patch has nothing, and the command is named."""
    ours, _ = _differences(day, session, folder)
    edits = "+drei" in ours and "acted" not in _lines(ours)
    named = f"#   {day.act} {folder}/b.txt" in ours
    told = any(line.startswith("# b.txt: changed") for line in ours.splitlines())
    wrong = "" if edits and named and told else ours
    day.note("a command: named, with the file that it changed", "show ID --diff", wrong)


def _spent(day: Day, item: str, calls: dict[str, int], home: Path | None = None) -> None:
    """Compare what is counted for each day with the calls of the model there were."""
    listed = day.command("cost", "--by", "day", "--json", home=home).splitlines()
    sums = [json.loads(line) for line in listed if line.startswith("{")]
    each, price = Count(), _PRICES.get(day.agent.name)
    wrong: list[object] = [] if len(sums) == len(calls) else [listed]
    for found, count in zip(sums, calls.values(), strict=False):
        uncounted = {told["what"] for told in found["uncounted"]}
        tokens, cost = found["tokens"], found["costs"].get("USD")
        if price is not None:
            due = count * (each.input * price[0] + each.output * price[1]) / 1e6
            if cost is None or abs(cost - due) > 1e-9:
                wrong.append(f"cost {cost}, due {due}")
        elif cost:
            wrong.append(f"cost {cost}")
        due_tokens = {"inputTokens": each.input * count, "outputTokens": each.output * count}
        if "tokens" not in uncounted and tokens:
            due_tokens["totalTokens"] = (each.input + each.output) * count
            told = {kind: number for kind, number in tokens.items() if number}
            wrong += [] if told == due_tokens else [f"{told}, due {due_tokens}"]
        if not tokens and not cost and not uncounted:
            wrong.append(f"nothing: {found}")
    day.note(f"{item}: as the model's server counted", "cost --by day", wrong)


def _searched(day: Day, first: str, second: str) -> None:
    for text, sessions in (
        ("zebras", {first}),
        ("LAST4", {first}),
        ('"n3 drei"', {second}),
        ("EDITED0", {first, second}),
        ("unsaid", set()),
    ):
        lines = day.command("sessions", "--search", text, "--json").splitlines()
        found = {json.loads(line)["sessionId"] for line in lines}
        wrong = "" if found == sessions else lines
        day.note(f"{text} is found in {len(sessions)}", "sessions --search", wrong)


def _traced(day: Day) -> None:
    """The traces are read by the other reader, and have the answer of each turn on both sides."""
    answered, wrong = {"Proxy": 0, "Agent": 0}, list[str]()
    for file in day.traces:
        for request, _ in read_trace(file).pairs:
            if request["method"] == "session/prompt":
                answered[request["to"].partition("(")[0]] += 1
        if file.stat().st_mode & 0o777 != 0o600:
            wrong.append("the file is not yours alone")
    if set(answered.values()) != {_PROMPTS}:
        wrong.append(f"turns: {answered}, not {_PROMPTS}")
    day.note("each turn is in the traces, by the other reader", "--trace FILE", wrong)


async def _moved(day: Day, session: str, folder: Path) -> None:
    """A session goes to an empty home and back, is the same there, and can go on."""
    other, back = day.home / "empty", day.home / "back"
    files = [day.home / f"bundle-{number}" for number in range(3)]
    wrong: list[object] = []
    told = [_transcript(day, session, day.home / "bridge")]
    moved = session
    homes = (day.home / "bridge", other, back)
    for number, (source, target) in enumerate(((0, 1), (1, 2))):
        wrong += [day.command("export", moved, str(files[number]), home=homes[source])]
        moved = day.command("import", str(files[number]), home=homes[target], folder=folder).strip()
        told.append(_transcript(day, moved, homes[target]))
    wrong += [day.command("export", moved, str(files[2]), home=back)]
    wrong = [each for each in wrong if each]
    if told[1] != told[0] or told[2] != told[0]:
        wrong.append("the transcript is another one")
    turns = [_turns(day, session, homes[0]), _turns(day, moved, back)]
    if turns[0] != turns[1]:
        wrong.append(f"the turns are others: {turns}")
    diffs = {day.command("show", moved, "--diff", home=back, folder=folder)}
    diffs.add(day.command("show", session, "--diff"))
    if len(diffs) != 1:
        wrong.append(f"the changes are others: {diffs}")
    day.note("to an empty home and back without loss", "export, import", wrong)
    before = day.server.turns
    async with day.at_work(back) as client:
        await client.load_session(moved, folder, PATIENCE)
        await _asked(day, client, "COUNT 3 0 MOVED")
    forgot = "zebras" not in day.server.given_for("MOVED")
    day.note("the agent goes on there, and knows what was said", "import", forgot)
    _spent(day, "costs there, of that alone", {"there": day.server.turns - before}, back)


def _transcript(day: Day, session: str, home: Path) -> list[Any]:
    lines = day.command("show", session, "--json", home=home).splitlines()
    return [{**json.loads(line), "sessionId": ""} for line in lines]


def _turns(day: Day, session: str, home: Path) -> list[Any]:
    lines = day.command("show", session, "--turns", "--json", home=home).splitlines()
    return [{**json.loads(line), "sessionId": ""} for line in lines]


def _kept_secret(day: Day, session: str) -> None:
    """Planted keys: one in no trace, and none in a redacted bundle."""
    found = [file.name for file in day.traces if _GIVEN in file.read_text()]
    day.note("a key in the environment: in no trace", "--trace FILE", found)
    bundle = day.home / "redacted"
    wrong: list[str] = [day.command("export", session, "--redact", str(bundle))]
    plain = (day.home / "bundle-0").read_bytes()
    wrong += [f"{key} is not even in the plain one" for key in _SAID if key.encode() not in plain]
    wrong += [key for key in (_GIVEN, *_SAID) if key.encode() in bundle.read_bytes()]
    wrong = [*filter(None, wrong)]
    day.note("keys that were said and written: in no redacted bundle", "export --redact", wrong)


def run(agents: Sequence[AgentNotOurs]) -> list[str]:
    """Put each agent through its two days; returns the results."""
    results = []
    for agent in agents:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
            DayServer() as server,
        ):
            day = Day(agent, True, Path(home), server)
            anyio.run(work, day)
        results += day.found
    return results
