"""The machine against a model of the other end, with the line cut at every message."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remote.connect.model import BROKEN, World, sessions_of

#: what happens, and how often.
STEPS = {
    "server reads": 14,
    "machine reads": 14,
    "all": 3,
    "happens": 16,
    "prompt": 5,
    "answer": 4,
    "stop": 1,
    "new": 1,
    "list": 1,
    "mode": 1,
    "load": 1,
    "refused load": 1,
    "broken load": 1,
    "cancelled load": 1,
    "two loads": 1,
    "cut": 3,
    "connect": 9,
    "refuse": 3,
    "long": 1,
    "no more": 1,
}


def greeted() -> World:
    world = World()
    world.connect()
    world.send("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    world.settle()
    return world


def act(world: World, step: str, which: int) -> None:
    sessions = sessions_of(world)
    name = sessions[which % len(sessions)] if sessions else ""
    live = list(world.server.sessions.values())
    match step:
        case "server reads":
            world.server_reads()
        case "machine reads":
            world.machine_reads()
        case "happens" if live:
            world.server.step(live[(which + world.server.asked) % len(live)], which)
            world.collect()
        case "all":
            world.settle()
        case "cut" if world.up:
            world.cut()
        case "connect" if not world.up:
            world.connect()
        case "refuse" if which == 0:
            world.server.refuses_cursors = True
        case "long":
            world._do(world.machine.is_down_for_long())
        case "no more":
            world._do(world.machine.wait_no_more())
        case _:
            say(world, step, name, which)


def say(world: World, step: str, name: str, which: int) -> None:
    """Let the editor do something, in a session if it has one."""
    match step:
        case "new" if len(world.server.sessions) < 3:
            world.send("session/new", {"cwd": "/w", "mcpServers": []})
        case "prompt" if name:
            block = {"type": "text", "text": f"words {len(world.sent)}"}
            world.send("session/prompt", {"sessionId": name, "prompt": [block]})
        case "stop" if name and (prompts := world.open_prompts(name)):
            world.stopped.add(prompts[0])
            world.notify("session/cancel", {"sessionId": name})
        case "answer" if world.dialogs:
            world.answer(list(world.dialogs)[which % len(world.dialogs)])
        case "list":
            world.send("session/list", {})
        case "mode" if name:
            world.send("session/set_mode", {"sessionId": name, "modeId": "m"})
        case _ if name:
            load(world, step, name, which)


def load(world: World, step: str, name: str, which: int) -> None:
    """Let the editor load a session that it has, or give a load up."""
    match step:
        case "load" if which == 0 and world.up:
            world.settle()  # what is on its way is shown before, as on any line
            world.load(name, "/w")
            while world.to_server:
                world.server_reads()
        case "broken load" if world.up and not opening(world):
            world.settle()
            world.load(name, BROKEN)
            while world.to_server:
                world.server_reads()
        case "refused load" if not opening(world):
            world.refused_load(name, "load" if which % 2 else "resume")
        case "two loads" if world.up and not opening(world):
            world.settle()
            first = which % 2
            if first:
                world.refused_load(name)
            world.load(name, "/w")
            if not first:
                world.refused_load(name)
            while world.to_server:
                world.server_reads()
        case "cancelled load":
            loads = [id for id, each in world.sent.items() if "load" in each["method"]]
            for id in [id for id in loads if id not in world.answered]:
                world.notify("$/cancel_request", {"requestId": id})


def opening(world: World) -> bool:
    """Return True while a request that opens a session is not answered."""
    methods = [each["method"] for id, each in world.sent.items() if id not in world.answered]
    return "session/load" in methods or "session/resume" in methods


def finish(world: World) -> None:
    if not world.up:
        world.connect()
    world.settle()
    live = world.server.sessions.values()
    assert {words for each in live for words in each.waiting}.isdisjoint(world.stopped)
    asked = {question for each in live for question in each.questions}
    assert set(world.dialogs.values()) == asked
    for dialog in list(world.dialogs):
        world.answer(dialog)
    for _ in range(400):
        world.settle()
        for session in list(world.server.sessions.values()):
            world.server.step(session, 6)
        world.collect()
    world.settle()


def play(seed: int) -> World:
    rng = Random(seed)
    world = greeted()
    world.send("session/new", {"cwd": "/w", "mcpServers": []})
    for _ in range(rng.randrange(20, 200)):
        act(world, rng.choices([*STEPS], [*STEPS.values()])[0], rng.randrange(7))
    finish(world)
    return world


@pytest.mark.hazard("N2.1")
def test_cut_anywhere_the_editor_sees_each_word_and_each_answer_once() -> None:
    for seed in range(300):
        try:
            judge(play(seed))
        except Exception as exc:
            raise AssertionError(f"seed {seed}") from exc


@given(st.lists(st.tuples(st.sampled_from([*STEPS]), st.integers(0, 6)), max_size=80))
def test_no_few_steps_lose_or_double_anything(steps: list[tuple[str, int]]) -> None:
    world = greeted()
    world.send("session/new", {"cwd": "/w", "mcpServers": []})
    for step, which in steps:
        act(world, step, which)
    finish(world)
    judge(world)


def judge(world: World) -> None:
    assert world.sent.keys() == world.answered.keys()
    server = world.server
    for name in sessions_of(world):
        said = [text for kind, text in server.sessions[name].entries if kind.startswith("agent")]
        assert world.texts(name) == "".join(said)
        users = [text for kind, text in world.shown.get(name, []) if kind.startswith("user")]
        loads = [each["params"] for each in world.sent.values() if "load" in each["method"]]
        is_loaded = name in [each["sessionId"] for each in loads if each["cwd"] == "/w"]
        assert len(users) == len(set(users)) if is_loaded else not users
    # each prompt ran once, in order, or never where a Stop came first
    for name, session in server.sessions.items():
        words = [
            message["params"]["prompt"][0]["text"]
            for message in world.sent.values()
            if message["method"] == "session/prompt" and message["params"]["sessionId"] == name
        ]
        ran = [text for kind, text in session.entries if kind.startswith("user")]
        assert ran == [each for each in words if each in ran]
        assert [each for each in words if each not in ran] == [
            each for each in words if each not in ran and each in world.stopped
        ]
    assert set(server.cancelled) <= world.stopped
    # an answer reached the question that it was for
    assert not world.dialogs
    for question, answer in server.answers.items():
        assert answer == world.given[question]


@pytest.mark.hazard("N2.1")
def test_a_cut_at_each_place_of_one_turn_loses_and_doubles_nothing() -> None:
    for place in range(40):
        world = greeted()
        world.send("session/new", {"cwd": "/w", "mcpServers": []})
        world.settle()
        world.send("session/prompt", {"sessionId": "s0", "prompt": [{"type": "text", "text": "w"}]})
        for number in range(40):
            if number == place:
                world.cut()
                world.connect()
            (world.server_reads if number % 2 else world.machine_reads)()
            if number > 2:
                world.server.step(world.server.sessions["s0"], number % 6)
                world.collect()
        finish(world)
        judge(world)
        assert world.server.runs == ["w"]
