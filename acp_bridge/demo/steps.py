"""The steps of the demo: what its clients do, and which checks are made.

A step goes on after a check that fails, and ends with a wait that fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

from acp_bridge.demo import checks
from acp_bridge.demo.track import Track

#: Seconds that the deaf agent gets to stop before it is killed, half of the default.
DRAIN = 1.0

BOAT, SUNDAY = "My boat is called Heron.", "She sails on Sunday."
STORY, LONGER, WAITING = "Tell me a story.", "Tell me a longer story.", "Do you still remember?"
SING, DEAF, AGAIN, WHO = "Sing.", "Sing, be stubborn.", "Sing again.", "Who are you?"
REMEMBER = "Remember?"

#: The prompts that each agent has got when `cancel` and `deaf_agent` are over.
TOLD = [BOAT, SUNDAY, REMEMBER, STORY, REMEMBER]
SUNG = [SING, REMEMBER, WHO, WHO, DEAF, REMEMBER, WHO]


# --- the built-in agent ---


async def three_at_once(track: Track) -> None:
    client = await track.start("built-in")
    await client.new_session(track.stage.home)
    prompts = await client.prompts(BOAT, SUNDAY, REMEMBER)
    await client.answered(*prompts)
    texts = [f"I will keep that in mind: {text}" for text in (BOAT, SUNDAY)]
    texts.append(f"You told me: {BOAT}; {SUNDAY}")
    check, record = track.section.check, client.recording
    check("each answered once, in the order of asking", checks.answered_in_order, record, prompts)
    check("updates before the answer of their turn", checks.streamed, record, prompts, texts)


async def cancel(track: Track) -> None:
    client = track.client
    story = await client.prompt(STORY)
    await client.streaming(story, 20)
    await client.cancel()
    await client.answered(story)
    then = await client.prompt(REMEMBER)
    await client.answered(then)
    check, record = track.section.check, client.recording
    check("the answer is 'cancelled'", checks.cancelled, record, story)
    check("nothing of it follows", checks.nothing_follows, record, story)
    check("the next prompt works", checks.recalls, record, then, TOLD[:-1])


async def bridge_killed(track: Track) -> None:
    client = track.client
    story = await client.prompt(LONGER)
    waiting = await client.prompt(WAITING)
    await client.accepted(waiting)
    await client.streaming(story, 20)
    client.kill_bridge()
    await client.gone()
    other = await track.start("after kill -9")
    load = await other.load_session(client.session_id, track.stage.home)
    await other.result(load)
    listing = await other.prompt("/queue")
    await other.answered(listing)
    run = await other.prompt("/queue run")
    await other.answered(run)
    check, before, after = track.section.check, client.recording, other.recording
    check("replayed as it was shown", checks.replayed, before, after, load)
    title = "the waiting prompt is held, not run"
    check(title, checks.held, before, waiting, after, load, listing, run)
    check("/queue run runs it", checks.recalls, after, run, [*TOLD, LONGER])


# --- another agent, which counts cancels and can ignore them ---


async def interrupt(track: Track) -> None:
    folder = track.stage.home / "singer"
    folder.mkdir()
    agent = [sys.executable, "-I", str(Path(__file__).with_name("stubborn_agent.py")), str(folder)]
    client = await track.start("singer", "--drain-timeout", str(DRAIN), "--", *agent)
    await client.new_session(track.stage.home)
    song = await client.prompt(SING)
    await client.streaming(song, 10)
    new = await client.prompt(REMEMBER, delivery="interrupt")
    count = await client.prompt(WHO)
    await client.answered(song, new, count)
    check, record = track.section.check, client.recording
    check("'cancelled', then the new one runs", checks.superseded, record, song, new)
    check("it is answered", checks.recalls, record, new, [SING])
    check("cancels that the agent got", checks.cancels_counted, record, count, 1)


async def deaf_agent(track: Track) -> None:
    client = track.client
    before = await client.prompt(WHO)
    deaf = await client.prompt(DEAF)
    await client.answered(before)
    await client.streaming(deaf, 10)
    await client.cancel()
    then, after = await client.prompts(REMEMBER, WHO)
    await client.answered(deaf)
    client.look_at(checks.agent_process(client.recording, before))
    await client.answered(then, after)
    check, record = track.section.check, client.recording
    title = f"'cancelled' after a drain of {DRAIN:g} s"
    check(title, checks.cancelled, record, deaf, drained=DRAIN)
    check("nothing of it follows", checks.nothing_follows, record, deaf)
    check("killed, restarted", checks.replaced, record, deaf, before, after)
    check("session reloaded", checks.recalls, record, then, SUNG[:-2])


async def agent_killed(track: Track) -> None:
    client = track.client
    song = await client.prompt(AGAIN)
    await client.streaming(song, 10)
    client.kill_agent()
    await client.answered(song)
    then = await client.prompt(REMEMBER)
    await client.answered(then)
    check, record = track.section.check, client.recording
    check("the prompt is answered", checks.failed, record, song)
    check("nothing of it follows", checks.nothing_follows, record, song)
    check("the session goes on", checks.recalls, record, then, [*SUNG, AGAIN])
