"""A database that is slow, and one whose disk is full."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.one_database.site import LONG, Place, Shown
from tests.support.client import RecordingClient

#: each commit takes a tenth of a second longer.
SLOW = ("commit_delay=100000", "commit_siblings=0")
#: megabytes; a new cluster takes the half.
ROOM = 120
PROMPTS = 20
#: a turn that says much while the disk is full.
RUNS = "say one; gate full; stream 3000; say two; gate room; say three"


@contextmanager
def small_disk() -> Iterator[Path]:
    """A folder of so little room that it can be filled."""
    folder = Path(tempfile.mkdtemp(prefix="small-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}m,mode=755", "small", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


async def slow(place: Place) -> None:
    """Every commit takes its time."""
    report, a = place.report, place.a
    report.title(f"A database that is slow ({', '.join(SLOW)})")
    async with a.bridge() as client:
        place.session_id = await client.new_session(place.project)
        since = time.monotonic()
        asked = [client.send_prompt(f"say {number};") for number in range(PROMPTS)]
        answers = [await client.answer_to(each, within=2 * LONG) for each in asked]
        took = time.monotonic() - since
        ended = sum("result" in each for each in answers)
        report.row(
            f"{PROMPTS} prompts one behind the other",
            a.command,
            f"{ended} ended well, {took:.1f} s",
            holds=ended == PROMPTS,
        )
    await _all_is_there(place, [f"say {number};" for number in range(PROMPTS)], [])


async def full(place: Place) -> None:
    """Its disk is full for a while."""
    report, a = place.report, place.a
    report.title("A database whose disk is full")
    disk = place.server.folder.parent
    filler = disk / "filler"
    async with a.bridge() as client:
        place.session_id = await client.new_session(place.project)
        await client.prompt("say before", within=LONG)
        turn = client.send_prompt(RUNS)
        await client.until_text("one", within=LONG)
        _fill(filler)
        report.row("the disk is full", f"cat /dev/zero >{filler.name}", _room(disk))
        accepted, refused = await _until_refused(place, client)
        texts = ["say before", RUNS, *accepted]
        place.gates.open("full")
        await client.until_text("two", within=LONG)
        notices = await client.until_recorded(lambda: Shown(client).notices, within=LONG)
        report.row("the turn goes on, and says so", "session/update", " ".join(notices).strip())
        filler.unlink()
        if not place.server.answers():
            place.server.start()
            report.row("its server had ended", "pg_ctl start", _room(disk))
        report.row("there is room again", f"rm {filler.name}", _room(disk))
        await client.logged("journal.caught_up", within=LONG)
        place.gates.open("room")
        await client.answer_to(turn, within=2 * LONG)
        why = await _taken(client, "say after")
        texts.append("say after")
        report.row("it takes prompts again", "session/prompt", why or "accepted", holds=not why)
        await client.until_text("after", within=2 * LONG)
        seen = Shown(client).words
    found = await _all_is_there(place, texts, refused)
    report.row(
        "every word that was shown is there",
        "session/load on machine B",
        f"{len(seen)} characters shown, {len(found)} there",
        holds=found == seen,
    )


async def _until_refused(place: Place, client: RecordingClient) -> tuple[list[str], list[str]]:
    """Send long prompts until one is refused; returns those that were accepted, and that one."""
    accepted: list[str] = []
    answer = text = ""
    while not answer and len(accepted) < PROMPTS:
        text = f"say {len(accepted)} {'x' * 100_000};"
        answer = await _taken(client, text)
        accepted += [] if answer else [text]
    place.report.row(
        "prompts of 100 kB each, until one is refused",
        "session/prompt",
        f"{len(accepted)} accepted, then: {answer}",
        holds=bool(answer),
    )
    return accepted, [text] if answer else []


async def _taken(client: RecordingClient, text: str) -> str:
    """Send a prompt; returns the reason if it is not taken, and nothing once it is accepted."""
    asked = client.send_prompt(text)

    def told() -> list[str]:
        found = []
        for message in client.recording.incoming():
            if message.get("method") == "_acp_bridge/accepted":
                found += [""] if message["params"]["requestId"] == asked else []
            elif message.get("id") == asked and "error" in message:
                found.append(str(message["error"]["message"]))
        return found

    return (await client.until_recorded(told, within=2 * LONG))[0]


async def _all_is_there(place: Place, prompts: list[str], refused: list[str]) -> str:
    """Machine B has every prompt once, and none that was refused; returns what the agent said."""
    async with place.b.bridge() as client:
        loaded = await client.load_session(place.session_id, place.project)
        held = loaded.get("_meta", {}).get("acp_bridge", {}).get("held", [])
        found = Shown(client)
    there = [*found.prompts, *(block["text"] for blocks in held for block in blocks)]
    wrong = [text[:20] for text in (*prompts, *refused) if there.count(text) != (text in prompts)]
    place.report.row(
        "every prompt that was accepted is there once, and none that was refused",
        "session/load on machine B",
        f"{len(prompts)} accepted, {len(refused)} refused, {len(there)} there"
        + (f"; wrong: {wrong}" if wrong else ""),
        holds=not wrong and len(there) == len(prompts),
    )
    return found.words


def _fill(file: Path) -> None:
    with file.open("wb") as out:
        subprocess.run(["cat", "/dev/zero"], stdout=out, stderr=subprocess.DEVNULL, check=False)


def _room(disk: Path) -> str:
    free = shutil.disk_usage(disk).free
    return f"{free / 1024:.0f} kB are free"
