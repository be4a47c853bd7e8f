"""Sessions that move between two machines again and again, with lines cut at every message."""

from random import Random

import pytest

from tests.remote.connect.model import sessions_of
from tests.remote.connect.places import Far, Places, greeted, place

#: what happens, and how often.
STEPS = {
    "reads": 28,
    "happens": 16,
    "prompt": 5,
    "answer": 4,
    "stop": 1,
    "mode": 1,
    "load": 1,
    "cut": 2,
    "up": 9,
    "move": 2,
    "refuse": 1,
    "long": 1,
}


def down(world: Places, server: Far) -> bool:
    """Whether there is no line to a server to which one is wanted."""
    return server in world.wanted() or (server is world.a and place(server) not in world.lines)


def act(world: Places, step: str, which: int) -> None:
    server = (world.a, world.b)[which % 2]
    live = [(name, each) for each in (world.a, world.b) for name in each.sessions]
    name, holder = live[which % len(live)] if live else ("", world.a)
    match step:
        case "reads":
            world.reads(server)
        case "happens" if live:
            holder.step(holder.sessions[name], which)
            world.hears(holder)
        case "cut" if place(server) in world.lines:
            world.line_down(server)
        case "up" if down(world, server):
            world.line_up(server)
        case "move" if live and not world.is_moving(name):  # it is followed once, and not twice
            if place(holder) in world.lines:
                world.line_down(holder)
            world.moves(name, world.b if holder is world.a else world.a)
        case "refuse":
            server.refuses_cursors = True
        case "long":
            world._do(world.router.is_down_for_long(place(server)))
        case "answer" if world.dialogs:
            world.answer(list(world.dialogs)[which % len(world.dialogs)])
        case _ if known := sessions_of(world):
            say(world, step, known[which % len(known)])


def say(world: Places, step: str, name: str) -> None:
    match step:
        case "prompt":
            block = {"type": "text", "text": f"words {len(world.sent)}"}
            world.send("session/prompt", {"sessionId": name, "prompt": [block]})
        case "stop" if prompts := world.open_prompts(name):
            world.stopped.add(prompts[0])
            world.notify("session/cancel", {"sessionId": name})
        case "mode":
            world.send("session/set_mode", {"sessionId": name, "modeId": "m"})
        case "load" if not down(world, world.a) and not down(world, world.b):
            world.settle()  # what is on its way is shown before, as on any line
            world.shown[name] = []
            world.send("session/load", {"sessionId": name, "cwd": "/w", "mcpServers": []})
            world.settle()


def finish(world: Places) -> None:
    """Have all lines be there, and all that waits be done."""
    for _ in range(200):
        for each in (world.a, world.b):
            if down(world, each):
                world.line_up(each)
        world.settle()
        for dialog in list(world.dialogs):
            world.answer(dialog)
        for each in (world.a, world.b):
            for session in list(each.sessions.values()):
                each.step(session, 6)
            world.hears(each)
    world.settle()


def judge(world: Places) -> None:
    assert world.sent.keys() == world.answered.keys()
    assert not world.dialogs
    for name in sessions_of(world):
        (server,) = [each for each in (world.a, world.b) if name in each.sessions]
        entries = server.sessions[name].entries
        said = [text for kind, text in entries if kind.startswith("agent")]
        assert world.texts(name) == "".join(said)
        words = {
            id: message["params"]["prompt"][0]["text"]
            for id, message in world.sent.items()
            if message["method"] == "session/prompt" and message["params"]["sessionId"] == name
        }
        ran = [text for kind, text in entries if kind.startswith("user")]
        assert ran == [each for each in words.values() if each in ran]
        assert set(words.values()) - set(ran) <= world.stopped
        for id in words:
            assert "result" in world.answered[id]
    assert {*world.a.cancelled, *world.b.cancelled} <= world.stopped


def play(seed: int) -> None:
    rng = Random(seed)
    world = greeted()
    for _ in range(2):
        world.send("session/new", {"cwd": "/w", "mcpServers": []})
        world.settle()
    for _ in range(rng.randrange(20, 200)):
        act(world, rng.choices([*STEPS], [*STEPS.values()])[0], rng.randrange(12))
    finish(world)
    judge(world)


@pytest.mark.hazard("N2.1")
def test_wherever_a_session_goes_each_word_and_each_answer_comes_once() -> None:
    for seed in range(300):
        try:
            play(seed)
        except Exception as exc:
            raise AssertionError(f"seed {seed}") from exc
