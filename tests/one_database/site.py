"""What runs on a machine: a bridge with a data folder of its own, and its agent."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psycopg

from acp_bridge.core.journal.reading import transcript
from tests.one_database.machines import Machine
from tests.one_database.report import Report
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.postgres import Cluster
from tests.support.recording import Message, Recording, RpcError
from tests.whole.bridge_support import TELL_ACCEPTED, accepted

ROOT = Path(__file__).parents[2]
#: seconds; the shortest that there is.
LEASE = 15
#: seconds for what is waited for, on a machine that may be busy.
LONG = 30.0
_NOTE = """
CREATE TABLE noted(row serial, address inet);
CREATE FUNCTION note() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.noted(address) VALUES (inet_client_addr()); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT ON acp_bridge.writes FOR EACH ROW EXECUTE FUNCTION note();
"""


class Site:
    """A machine, its folders, and how its bridges are started."""

    def __init__(self, machine: Machine, folder: Path, url: str, env: dict[str, str]) -> None:
        self.machine = machine
        self.home = folder / machine.name
        self.log = FixtureLog(folder / f"{machine.name}.log")
        self._url = url
        #: seconds.
        self.lease = LEASE
        own = {"ACP_BRIDGE_HOME": str(self.home), "ACP_BRIDGE_LOG_LEVEL": "debug"}
        kept = {"FIXTURE_HOME": str(folder / "agent")}
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), **own, **kept, **self.log.env, **env}

    @property
    def _options(self) -> tuple[str, ...]:
        return ("--journal", self._url, "--lease", str(self.lease))

    @property
    def command(self) -> str:
        """How its bridges are started, for a person."""
        return f"acp-bridge {' '.join(self._options)} -- AGENT"

    def words(self, *command: str, agent: bool = False) -> list[str]:
        """Return the words that run a command of acp-bridge there; `agent`: with the database."""
        behind = (*self._options, "--", *fixture_command()) if agent else ()
        return self.machine.at(sys.executable, "-m", "acp_bridge", *command, *behind)

    @asynccontextmanager
    async def bridge(self) -> AsyncIterator[RecordingClient]:
        """A bridge there, and the client that has started it."""
        async with RecordingClient.start(
            self.words(agent=True), env=self.env, exit_within=10
        ) as client:
            await client.initialize(TELL_ACCEPTED)
            yield client

    def set_aside(self) -> list[Path]:
        """The files of what another machine's session lacks."""
        return sorted(self.home.glob("databases/*/sessions/*.lost-*"))


class Shown:
    """What a client was shown of a session until some time."""

    def __init__(self, client: RecordingClient, until: float = float("inf")) -> None:
        records = [each for each in client.recording if each.time <= until]
        told = Recording(records).incoming()
        params = [each["params"] for each in told if each.get("method") == "session/update"]
        #: what the agent said.
        self.words = said(params)
        #: each prompt.
        self.prompts = _texts(params, "user_message_chunk")
        #: what the bridge said itself.
        self.notices = _texts([each for each in params if _is_notice(each)], "agent_message_chunk")


def said(params: Sequence[Message]) -> str:
    """What the agent says in params of `session/update`."""
    return "".join(_texts([p for p in params if not _is_notice(p)], "agent_message_chunk"))


def said_in(file: Path) -> str:
    """What the agent says in the file of a session, which has any name."""
    with tempfile.TemporaryDirectory(prefix="aside-") as home:
        (Path(home) / "sessions").mkdir()
        shutil.copy(file, Path(home, "sessions", f"{file.stem}.db"))
        return said(list(transcript(Path(home), file.stem)))


def _texts(params: Sequence[Message], kind: str) -> list[str]:
    updates = [each["update"] for each in params]
    return [each["content"]["text"] for each in updates if each["sessionUpdate"] == kind]


def _is_notice(params: Message) -> bool:
    return bool(params.get("_meta", {}).get("acp_bridge", {}).get("notice"))


def stream(words: str) -> int | None:
    """How many numbers there are behind the first turn's word; None if one is not there once."""
    first, numbers = words[: len("before")], words[len("before") :]
    count = len(numbers.split())
    right = "".join(f"{number} " for number in range(count))
    return count if first == "before" and numbers == right else None


@dataclass
class Place:
    """Two machines, their database, and what they do with a session of it."""

    report: Report
    #: of the database, as its own machine has it.
    url: str
    folder: Path
    a: Site
    b: Site
    server: Cluster
    gates: Gates
    session_id: str = ""
    project: Path = field(init=False)

    def __post_init__(self) -> None:
        """Make the project, which both machines have at the same place."""
        self.project = self.folder / "project"
        self.project.mkdir()

    def note_writers(self) -> None:
        """Have the database note from which address each row of the log comes."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(_NOTE)

    def writers(self) -> list[str]:
        """The machines from which the rows came, in order."""
        with psycopg.connect(self.url, autocommit=True) as db:
            rows = db.execute("SELECT host(address) FROM noted ORDER BY row").fetchall()
        names = {site.machine.address: site.machine.name for site in (self.a, self.b)}
        return [names[address] for (address,) in rows]

    async def begin(self, client: RecordingClient, runs: str, wait: Sequence[str]) -> Any:
        """Have a turn run on machine A, and prompts wait behind it; returns the turn's id."""
        self.session_id = await client.new_session(self.project)
        self.note_writers()
        await client.prompt("say before", within=LONG)
        turn = client.send_prompt(runs)
        await client.until_text("30 ", within=LONG)
        for text in wait:
            await accepted(client, client.send_prompt(text))
        self.report.row(
            "a turn runs on machine A, and prompts wait behind it",
            self.a.command,
            f"{runs!r} runs, {len(wait)} prompts are accepted",
        )
        return turn

    async def take_up(self, client: RecordingClient, since: float) -> tuple[float, Any]:
        """Load the session on machine B as soon as it can be had; returns when that was asked."""
        refused: set[str] = set()
        with anyio.fail_after(2 * LONG):
            while True:
                asked = time.monotonic()
                try:
                    loaded = await client.load_session(self.session_id, self.project)
                    break
                except RpcError as error:
                    refused.add(error.message)
                await anyio.sleep(0.2)
        named = all(self.a.machine.name in each for each in refused)
        self.report.row(
            "until the lease is over, machine B is told who has the session",
            f"{self.b.command}, session/load",
            " / ".join(refused),
            holds=bool(refused) and named,
        )
        self.report.row(
            "then machine B takes it up",
            "session/load",
            f"{asked - since:.1f} s after, lease {LEASE} s",
            holds=asked - since <= LEASE + 3,
        )
        return asked, loaded

    def judge_taken_up(
        self,
        client: RecordingClient,
        seen: Shown,
        runs: str,
        wait: Sequence[str],
        loaded: tuple[float, Any],
    ) -> None:
        """What machine B shows has all that was shown before, and every prompt once."""
        found, count = Shown(client), stream(Shown(client).words)
        self.report.row(
            "every word that A's client was shown is there, once",
            "session/load",
            f"A's client: {stream(seen.words)} numbers, B: {count}, ... {found.words[-20:]!r}",
            holds=count is not None and found.words.startswith(seen.words),
        )
        held = loaded[1].get("_meta", {}).get("acp_bridge", {}).get("held", [])
        waiting = [block["text"] for blocks in held for block in blocks]
        self.report.row(
            "every prompt is there, once: what ran as it was said, what waited held",
            "session/load",
            f"said {found.prompts}, held {waiting}",
            holds=found.prompts == ["say before", runs] and waiting == list(wait),
        )
        interrupted = [each for each in found.notices if "Interrupted" in each]
        self.report.row(
            "what ran is interrupted",
            "session/load",
            " ".join(interrupted).strip(),
            holds=len(interrupted) == 1,
        )

    async def go_on(self, client: RecordingClient, runs: str, wait: Sequence[str]) -> None:
        """What was held runs on machine B on the user's word; no prompt was sent twice."""
        before = self.b.log.prompts()
        mark = len(Shown(client).words)
        await client.prompt("/queue run", within=LONG)
        await client.prompt("say and more", within=LONG)
        words = Shown(client).words[mark:]
        right = "".join(text.removeprefix("say ") for text in (*wait, "say and more"))
        self.report.row(
            "the session goes on at machine B",
            "/queue run",
            repr(words),
            holds=words == right and before == [],
        )
        a, b = self.a.log.prompts(), self.b.log.prompts()
        self.report.row(
            "no prompt was sent to an agent twice",
            "what the agents of both machines got",
            f"A {a}, B {b}",
            holds=a == ["say before", runs] and b == [*wait, "say and more"],
        )
