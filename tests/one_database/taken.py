"""A lease is set back while its bridge lives, and another machine takes the session.

Both agents write the time into a file of their own, again and again, for as long as they live.
"""

import time
from pathlib import Path

import anyio
import psycopg

from tests.one_database.site import LONG, Place
from tests.support.client import RecordingClient
from tests.support.recording import RpcError
from tests.support.waiting import until

#: seconds for which an agent may live on after the database knows that another has the session.
AT_MOST = 1.0
#: seconds of beats that are looked at after that.
WATCHED = 4.0
ROUNDS = 3
SET_BACK = "UPDATE acp_bridge.bridges SET until = until - interval '1 hour'"
KNOWN = (
    "SELECT extract(epoch FROM min(at)) FROM public.claims"
    " JOIN acp_bridge.sessions USING (owner) WHERE session_id = %s"
)
_NOTE = """
CREATE TABLE IF NOT EXISTS public.claims(at timestamptz, owner text);
CREATE OR REPLACE FUNCTION claimed() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.claims VALUES (clock_timestamp(), NEW.owner); RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER claimed AFTER UPDATE OF owner ON acp_bridge.sessions
FOR EACH ROW WHEN (NEW.owner IS DISTINCT FROM OLD.owner) EXECUTE FUNCTION claimed();
"""


async def taken_from_a_living_bridge(place: Place) -> None:
    """In a turn that says nothing, and at rest: the first agent is dead within a second."""
    place.report.title("A lease is set back, and another machine takes the session")
    for number in range(ROUNDS):
        for rests in (False, True):
            await _taken(place, f"{number}-{'rest' if rests else 'turn'}", rests=rests)


async def _taken(place: Place, name: str, *, rests: bool) -> None:
    ours, theirs = (place.folder / f"{name}.{which}" for which in "ab")
    async with place.a.bridge() as client, place.b.bridge() as other:
        session_id = await client.new_session(place.project)
        await client.prompt("say before", within=LONG)
        turn = f"beat {ours}; say one" if rests else f"beat {ours}; say one; gate {name}"
        asked = client.send_prompt(turn)
        await client.until_text("one", within=LONG)
        await until(lambda: len(_beats(ours)) > 5, LONG)
        with psycopg.connect(place.url, autocommit=True) as db:
            db.execute(_NOTE)
        known = await _take(place, other, session_id)
        other.send_prompt(f"beat {theirs}; gate {name}-b")
        await client.until_text("can't go on here", within=LONG)
        ended = "" if rests else (await client.answer_to(asked, LONG))["error"]["message"]
        await anyio.sleep(known + WATCHED - time.time())
        last, after = max(_beats(ours)), [at for at in _beats(theirs) if at > known + AT_MOST]
        place.report.row(
            f"{'at rest' if rests else 'in a turn'}: A's agent is dead, and B's works",
            SET_BACK,
            f"A's last beat {last - known:.2f} s after the claim, B's later: {len(after)}; {ended}",
            holds=last - known <= AT_MOST and bool(after) and (rests or "was ended" in ended),
        )
        place.gates.open(f"{name}-b")


async def _take(place: Place, other: RecordingClient, session_id: str) -> float:
    """Have machine B take the session; returns when the database knew of it."""
    with anyio.fail_after(2 * LONG), psycopg.connect(place.url, autocommit=True) as db:
        while True:
            db.execute(SET_BACK)
            try:
                await other.load_session(session_id, place.project)
                break
            except RpcError:  # the bridge that has it was quicker
                await anyio.sleep(0.2)
        (known,) = db.execute(KNOWN, (session_id,)).fetchone() or (0.0,)
    return float(known)


def _beats(file: Path) -> list[float]:
    """The times in a file; its last line may be half written."""
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    return [float(line) for line in whole.splitlines()]
