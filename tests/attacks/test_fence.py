"""What an agent can do with its own rights to the processes of ours that speak to a bridge.

Everything here runs without the rights of root, which no fence holds.
"""

import json
import signal

import anyio
import pytest

from tests.attacks.field import SECONDS, Field, told_by
from tests.support.client import RecordingClient
from tests.support.client_side import NoAnswer
from tests.support.person import person
from tests.support.processes import children, gone
from tests.support.recording import Message
from tests.support.rights import for_commoner, without_rights
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.slow]

REJECTED = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}


def unanswered(params: Message) -> Message:
    """Leaves a permission open, for the test to answer."""
    raise NoAnswer


def stolen(said: str) -> list[object]:
    """What the thief got, of how many processes at least two: a client's and a bridge's."""
    told = json.loads(said)
    assert len(told["seen"]) >= 2
    got: list[object] = told["got"]
    return got


async def thief_said(client: RecordingClient) -> str:
    """What the agent of a client says of its theft."""
    await client.prompt("thief", within=SECONDS)
    return told_by(client)


@pytest.mark.hazard("S17", "P17.2")
async def test_an_agent_gets_at_no_descriptor_or_memory_of_run_and_its_bridge(field: Field) -> None:
    code, said = await field.command("run", "thief", "--", *field.agent)
    assert code == 0, said
    assert stolen(next(line for line in said.splitlines() if line.startswith("{"))) == []


@pytest.mark.hazard("S17", "P17.2")
@pytest.mark.parametrize("words", [["chat"], ["attach"]])
async def test_an_agent_gets_at_no_descriptor_or_memory_of_what_a_person_types_into(
    field: Field, words: list[str]
) -> None:
    async with field.bridge() as client:
        await field.listening(client)
        command = [*words, "--", *field.agent] if words == ["chat"] else [*words, client.session_id]
        async with person(command, field.folder, field.env, without_rights()) as there:
            await there.sees("»")
            assert stolen(await thief_said(client)) == []


@pytest.mark.hazard("S17", "P17.2")
async def test_an_agent_gets_at_no_descriptor_or_memory_of_a_kept_bridge_and_its_waiter(
    field: Field,
) -> None:
    async with field.bridge("--keep", "1h") as client:
        assert stolen(await thief_said(client)) == []


@pytest.mark.hazard("S17", "P17")
async def test_a_bridge_does_not_outlive_a_killed_command_whose_agent_wants_to_hold_its_pipe(
    field: Field,
) -> None:
    """What the thief opens it keeps, and it lives as long as the bridge does."""
    args = ["chat", "--", *field.agent]
    async with person(args, field.folder, field.env, without_rights()) as there:
        await there.sees("»")
        there.type("thief\r")
        await there.sees("seen")
        (bridge,) = children(there.process.pid)
        there.process.send_signal(signal.SIGKILL)
        await gone(bridge, within=SECONDS)


@pytest.mark.hazard("S15", "V6.4")
@pytest.mark.parametrize("options", [[], ["--no-listen"]])
async def test_an_orphan_of_a_stopped_bridge_without_a_run_file_can_not_join_another(
    field: Field, options: list[str]
) -> None:
    result = field.folder / "said"
    async with field.bridge() as other:
        there = await field.listening(other)
        async with field.bridge(*options) as client:
            if not options:
                await field.listening(client)
            client.send_prompt(f"orphan {there.socket} {result}")
            try:
                with anyio.fail_after(SECONDS):
                    await until(result.exists, within=SECONDS)
            finally:
                client.terminate(signal.SIGCONT)
            assert "agents and what they start" in result.read_text()


@pytest.mark.hazard("S15", "S25", "V6.4", "C18")
@pytest.mark.parametrize("way", ["socket", "namespace", "command"])
async def test_what_outlives_its_guard_and_bridge_can_not_answer_in_the_bridge_that_is_next(
    field: Field, way: str
) -> None:
    """It has a session of its own, kills both at once, and has no ancestor that is marked."""
    result = field.folder / "said"
    async with field.bridge() as client:
        await field.listening(client)
        client.send_prompt(f"heir {result} {way}")
        assert await client.wait(within=SECONDS) == -signal.SIGKILL
    async with field.bridge() as second:
        await field.listening(second)
        second.side.handlers["session/request_permission"] = unanswered
        running = second.send_prompt("wants")
        request = await second.until_request("session/request_permission", within=SECONDS)
        with anyio.fail_after(SECONDS):
            await until(result.exists, within=SECONDS)
        told = json.loads(result.read_text())
        assert told["parent"] not in told["dead"]
        assert not told["raised"]
        refusal = "agents and what they start" if way != "command" else "an agent"
        assert refusal in told["answer"]
        assert second.recording.answers(running) == []
        second.answer(request["id"], REJECTED)
        assert (await second.answer_to(running, SECONDS))["result"]["stopReason"] == "end_turn"
        assert "reject_once" in second.text()


@pytest.mark.hazard("S16", "V6.2", "V6.12")
async def test_an_agent_can_not_pose_as_the_bridge_of_its_session(field: Field) -> None:
    heard = field.folder / "heard"
    async with field.bridge() as client:
        await field.listening(client)
        await client.prompt(f"pose {heard}")
        running = client.send_prompt("hang")
        short = client.session_id[:8]
        code, said = await field.command("ps")
        assert (code, said.count(short)) == (0, 1)
        code, said = await field.command("doctor")
        assert "no acp-bridge of yours" in " ".join(said.split())
        async with field.bridge() as second:
            params = {"sessionId": client.session_id, "cwd": str(field.folder), "mcpServers": []}
            request = second.send_request("session/load", params)
            answer = await second.answer_to(request, within=SECONDS)
            assert "no acp-bridge of yours" in answer["error"]["data"]["details"]
        code, said = await field.command("send", short, "for the agent alone")
        assert code == 0, said
        code, said = await field.command("cancel", short)
        assert (code, said.startswith(f"Cancelled what runs in session {short}")) == (0, True)
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
    assert not heard.exists()


@pytest.mark.hazard("S18", "P17.4")
async def test_an_agent_s_tool_gets_at_no_stream_of_its_own_agent_or_another(field: Field) -> None:
    async with field.bridge(), field.bridge() as client:
        await client.prompt("meddle", within=SECONDS)
        found = json.loads(told_by(client))
    assert len(found) >= 4
    assert [each for each in found if isinstance(each[2], int)] == []


@pytest.mark.hazard("S18", "P17.5")
async def test_an_agent_can_not_answer_in_the_place_of_a_hook(field: Field) -> None:
    done = field.folder / "done"
    wait = f"while [ ! -e {done} ]; do sleep 0.02; done"
    field.home.mkdir(mode=0o700)
    (field.home / "hooks.toml").write_text(f"[[PermissionRequest]]\ncommand = {wait!r}\n")
    for_commoner(field.home)
    async with field.bridge() as client:
        await client.prompt(f"permit {done}", within=SECONDS)
        assert len(client.recording.requests("session/request_permission")) == 1
        said = str(client.updates(client.session_id)[-1])
    assert "reject_once" in said


@pytest.mark.hazard("S5", "V6.8")
async def test_what_an_agent_says_does_not_pass_for_the_bridge_s_words(field: Field) -> None:
    async with field.bridge() as client:
        before = len(client.recording)
        await client.prompt("sham")
        said = client.recording.incoming(before)
    shown = [each["params"] for each in said if each.get("method") == "session/update"]
    assert {"mine": 1} in [each.get("_meta") for each in shown]
    assert "acp_bridge" not in json.dumps(said)


#: runs commands, those that ask a person on a terminal of its own.
COMMANDS = r"""
import json, os, pty, subprocess, sys

ours, theirs = pty.openpty()
os.write(ours, b"yes\nsk-made-up-0123456789\n")
said = {}
for words in json.loads(sys.argv[1]):
    command = [sys.executable, "-m", "acp_bridge", *words]
    done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, timeout=30)
    said[" ".join(words)] = [done.returncode, os.read(ours, 65536).decode()]
print(json.dumps(said))
"""


@pytest.mark.hazard("S19")
async def test_no_command_answers_stops_trusts_or_changes_keys_for_an_agent(field: Field) -> None:
    """It has made itself a terminal."""
    (field.folder / ".acp_bridge").mkdir()
    (field.folder / ".acp_bridge" / "hooks.toml").write_text("[[Stop]]\ncommand = 'true'\n")
    async with field.bridge() as client:
        await field.listening(client)
        live = client.session_id
        keys = [["key", "OPENAI_API_KEY"], ["key", "--remove", "OPENAI_API_KEY"]]
        hooks = [["trust", str(field.folder)], ["trust", "--remove", str(field.folder)]]
        words = ["approve", "deny", "cancel", "close", "attach"]
        more = [["send", live, "hi"], ["delete", live, "--yes"], ["ps"]]
        tried = [*keys, *hooks, *more, *([each, live] for each in words)]
        said = await field.attack(client, COMMANDS, json.dumps(tried, separators=(",", ":")))
        answers = json.loads(said)
        assert len(answers) == len(tried)
        for command, (code, words) in answers.items():
            assert (code, "an agent can't" in " ".join(words.split())) == (1, True), command
    assert not (field.home / "keys.env").exists()


#: leaves processes behind that are hard to find and don't want to end; notes their pids.
STAYING = r"""
import ctypes, json, os, signal, sys, time

libc = ctypes.CDLL(None, use_errno=True)
way, noted = sys.argv[1:]

def stay():
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 64)
    while True:
        time.sleep(100)

pids = []
if way == "namespace" and libc.unshare(0x10000000 | 0x20000000):  # of users and of pids
    pids = None
elif way == "sibling":  # a child of its parent
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    pids.append(libc.syscall(clone, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) or stay())
else:
    readable, writable = os.pipe()
    if not (above := os.fork()):
        below = os.fork()
        if below:
            os.write(writable, b"%d" % below)
            os._exit(0)
        stay()
    if way == "namespace":  # what is below has another number here, and ends with it
        pids.append(above)
    else:
        pids.append(int(os.read(readable, 16)))
with open(noted + ".new", "w") as file:
    json.dump(pids, file)
os.rename(noted + ".new", noted)
if way == "guard":
    agent = os.getppid()
    guard = int(open(f"/proc/{agent}/stat").read().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGKILL)
"""


@pytest.mark.hazard("S20", "P1.2")
@pytest.mark.parametrize(
    ("way", "end"),
    [
        *((way, end) for way in ("orphan", "sibling", "namespace") for end in ("close", "kill")),
        ("guard", "close"),
    ],
)
async def test_nothing_that_an_agent_leaves_behind_outlives_its_session(
    field: Field, way: str, end: str
) -> None:
    """`guard`: it kills its guard as well. What kills bridge and guard at once outlives both."""
    noted = field.folder / "noted"
    async with field.bridge() as client:
        client.send_prompt(field.tool(STAYING, way, str(noted)))
        await until(noted.exists, within=SECONDS)
        pids = json.loads(noted.read_text())
        if pids is None:
            pytest.skip("no user namespaces without root here")
        if end == "kill":
            client.terminate(signal.SIGKILL)
            await client.wait(within=SECONDS)
    for pid in pids:
        await gone(pid)
