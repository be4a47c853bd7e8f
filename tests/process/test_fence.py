"""What an agent can do with its own rights to the processes of ours that speak to a bridge.

Everything here runs without the rights of root, which no fence holds.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from acp_bridge.listening.run_files import LiveBridge, live_bridges
from tests.process.tiny_agent import tiny_agent
from tests.support.client import RecordingClient
from tests.support.client_side import NoAnswer
from tests.support.person import person
from tests.support.processes import children, gone
from tests.support.recording import Message
from tests.support.rights import for_commoner, without_rights
from tests.support.waiting import until

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
REJECTED = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}
#: for what starts several interpreters
_SECONDS = 30.0

#: An agent that attacks with what it is prompted to, and says what came of it.
ATTACKER = r"""
import fcntl, glob, resource, signal, socket, threading

def session_prompt(id, params):
    words = params["prompt"][0]["text"].split()
    if words[0] not in ("thief", "orphan", "pose", "hang", "meddle", "permit",
                        "wants", "heir"):
        words = ["note", json.dumps(words)]
    said = globals()[words[0]](*words[1:])
    update("s", **text(said))
    if words[0] in ("hang", "permit", "wants"):
        asked.append(id)
        return None
    return {"stopReason": "end_turn"}

asked = []

def answer(id, params):
    update("s", **text(json.dumps(params["result"]["outcome"])))
    send(id=asked.pop(), result={"stopReason": "end_turn"})

def session_cancel(id, params):
    pass

def hang():
    return "hangs"

def note(words):
    return "took " + words

# what can be had of each process of ours that is no agent's

def targets():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read()
            other = resource.prlimit(int(name), 10) == (-1, -1)
            ours = os.stat(f"/proc/{name}/cmdline") and b"acp_bridge" in words
        except OSError:
            continue
        if ours and other:
            yield int(name), words

def thief():
    import ctypes
    libc = ctypes.CDLL(None)
    got, seen = [], []
    for pid, words in targets():
        seen.append(pid)
        pidfd = os.pidfd_open(pid)
        for fd in range(64):
            for how, take in (
                ("pidfd_getfd", lambda: libc.syscall(438, pidfd, fd, 0)),
                ("proc", lambda: os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)),
            ):
                try:
                    taken = take()
                except OSError:
                    continue
                if taken >= 0:
                    got.append([words.decode(), fd, how])
        for file in ("mem", "environ"):
            try:
                open(f"/proc/{pid}/{file}", "rb").read(1)
                got.append([words.decode(), file])
            except OSError:
                pass
    return json.dumps({"seen": seen, "got": got}) + "\n"

# the streams over which agents, tools and hooks are told and say something

def opened(words, fds):
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{name}/cmdline", "rb").read()
        except OSError:
            continue
        if words.encode() in line and b"acp_bridge" not in line and b"guard" not in line:
            for fd in fds:
                try:
                    yield name, fd, os.open(f"/proc/{name}/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
                except OSError as error:
                    yield name, fd, error.strerror

def meddle():
    return json.dumps(list(opened("tiny_agent", [0, 1])))

def wants():
    options = [{"optionId": kind, "name": kind, "kind": kind}
               for kind in ("allow_once", "reject_once")]
    send(id=7, method="session/request_permission", params={
        "sessionId": "s", "toolCall": {"toolCallId": "t", "title": "rm"}, "options": options})
    return "wants"

def permit(done):
    options = [{"optionId": kind, "name": kind, "kind": kind}
               for kind in ("allow_once", "reject_once")]
    send(id=7, method="session/request_permission", params={
        "sessionId": "s", "toolCall": {"toolCallId": "t", "title": "rm"}, "options": options})
    while not (found := list(opened(done, [1]))):
        time.sleep(0.01)
    for _, _, fd in found:
        if isinstance(fd, int):
            os.write(fd, b'{"permissionDecision": "allow"}')
    open(done, "w").close()
    return json.dumps(found)

# a grandchild with a session of its own, which goes on

def go_apart():
    guard = os.getppid()
    bridge = int(open(f"/proc/{guard}/stat").read().rpartition(")")[2].split()[1])
    if os.fork():
        time.sleep(1000)
    os.setsid()
    if os.fork():
        os._exit(0)
    return guard, bridge

# a process that has lost all above it, and its bridge's run file with it

def orphan(path, result):
    guard, bridge = go_apart()
    for name in glob.glob(os.environ["ACP_BRIDGE_HOME"] + "/run/*.json"):
        if json.load(open(name))["pid"] == bridge:
            os.unlink(name)
    os.kill(bridge, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    while os.path.exists(f"/proc/{guard}"):
        if "Z" in open(f"/proc/{guard}/stat").read().rpartition(")")[2].split()[0]:
            break
    for limit in (-1, 5):
        try:
            resource.setrlimit(10, (limit, limit))
        except ValueError:
            pass
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(path)
    hello = {"protocolVersion": 1, "clientCapabilities": {}}
    line = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    try:
        talk.send(json.dumps(line).encode() + b"\n")
    except BrokenPipeError:  # it was told so before it could ask
        pass
    said = talk.recv(65536)
    with open(result + ".part", "wb") as file:
        file.write(said)
    os.rename(result + ".part", result)
    os._exit(0)

def say_yes(path, session):
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(path)

    def tell(**message):
        talk.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    load = {"id": 2, "method": "session/load",
            "params": {"sessionId": session, "cwd": os.getcwd(), "mcpServers": []}}
    try:
        tell(id=1, method="initialize",
             params={"protocolVersion": 1, "clientCapabilities": {}})
        tell(**load)
    except BrokenPipeError:
        pass  # the refusal came first
    for line in talk.makefile():
        message = json.loads(line)
        if "open in another" in line:  # it is being made
            tell(**load)
        elif "error" in message:
            return line
        if message.get("method") == "session/request_permission":
            chosen = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            tell(id=message["id"], result=chosen)
            return "said yes"

# one that has outlived its guard and its bridge, and joins the bridge that is started next

def heir(result, way):
    import ctypes, subprocess
    guard, bridge = go_apart()
    signal.alarm(60)
    sessions = os.environ["ACP_BRIDGE_HOME"] + "/sessions/*.db"
    old = set(glob.glob(sessions))
    os.kill(bridge, signal.SIGSTOP)  # it would kill what the guard leaves behind
    os.kill(guard, signal.SIGKILL)
    os.kill(bridge, signal.SIGKILL)
    while os.getppid() in (guard, bridge):
        time.sleep(0.01)
    said = {"parent": os.getppid(), "dead": [guard, bridge]}
    if way == "namespace":
        said["unshared"] = ctypes.CDLL(None).unshare(0x10000000)
    try:
        resource.setrlimit(10, (-1, -1))
        said["raised"] = True
    except (ValueError, OSError):
        said["raised"] = False
    found = []
    while not found:
        for name in glob.glob(os.environ["ACP_BRIDGE_HOME"] + "/run/*.json"):
            try:
                found += [run["socket"] for run in [json.load(open(name))] if run["pid"] != bridge]
            except (OSError, ValueError):
                pass
    while not (new := set(glob.glob(sessions)) - old):
        time.sleep(0.01)
    newest = os.path.basename(new.pop())[:-3]
    if way == "command":
        command = [sys.executable, "-m", "acp_bridge", "approve", newest,
                   "--option", "allow_once"]
        done = subprocess.run(command, capture_output=True, text=True)
        said["answer"] = done.stdout + done.stderr
    else:
        said["answer"] = say_yes(found[0], newest)
    with open(result + ".part", "w") as file:
        json.dump(said, file)
    os.rename(result + ".part", result)
    os._exit(0)

# a bridge that is none

def serve(listener, heard):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=converse, args=(connection, heard), daemon=True).start()

def converse(connection, heard):
    for line in connection.makefile("rb"):
        with open(heard, "ab") as file:
            file.write(line)
        message = json.loads(line)
        if "id" not in message:
            continue
        home = os.environ["ACP_BRIDGE_HOME"]
        locks = glob.glob(home + "/**/*.lock", recursive=True)
        ids = [os.path.basename(name)[:-5] for name in locks]
        result = {"protocolVersion": 1, "agentCapabilities": {}, "cancelled": True,
                  "stopReason": "end_turn", "accepted": True,
                  "sessions": [{"sessionId": each, "state": "idle", "cwd": "/"} for each in ids]}
        connection.send(json.dumps(
            {"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")

def pose(heard):
    home = os.environ["ACP_BRIDGE_HOME"]
    path = home + "/run/f.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    (real,) = glob.glob(home + "/run/*.json")
    told = {**json.load(open(real)), "socket": path, "pid": os.getpid()}
    file = os.open(home + "/run/f.json", os.O_RDWR | os.O_CREAT)
    os.write(file, json.dumps(told).encode())
    fcntl.flock(file, fcntl.LOCK_EX)
    for lock in glob.glob(home + "/**/*.lock", recursive=True):
        with open(lock, "r+") as held:
            content = held.read()
            if content:
                held.seek(0)
                held.truncate()
                held.write(json.dumps({**json.loads(content), "socket": path}))
    threading.Thread(target=serve, args=(listener, heard), daemon=True).start()
    return "poses"
"""


@dataclass(frozen=True)
class Field:
    """Where commands run with the rights of a user, and what they need in their environment."""

    folder: Path
    env: dict[str, str]
    agent: list[str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @asynccontextmanager
    async def bridge(self, *options: str) -> AsyncIterator[RecordingClient]:
        words = [sys.executable, "-m", "acp_bridge", *options, "--", *self.agent]
        async with RecordingClient.start([*without_rights(), *words], env=self.env) as client:
            await client.initialize()
            await client.new_session(self.folder)
            yield client

    async def listening(self, client: RecordingClient) -> LiveBridge:
        pid = client.process and client.process.pid

        def found() -> list[LiveBridge]:
            return [bridge for bridge in live_bridges(self.home) if bridge.pid == pid]

        await until(found)
        return found()[0]

    async def command(self, *words: str) -> tuple[int, str]:
        """The exit code of a command, and all that it prints."""
        command = [*without_rights(), sys.executable, "-m", "acp_bridge", *words]
        with anyio.fail_after(_SECONDS):
            done = await anyio.run_process(
                command,
                env={**os.environ, **self.env},
                cwd=self.folder,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return done.returncode, done.stdout.decode()


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    monkeypatch.delenv("ACP_BRIDGE_DEBUGGABLE")
    with tempfile.TemporaryDirectory(prefix="field-") as name:
        folder = for_commoner(Path(name))
        own = {"ACP_BRIDGE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "HOME": name}
        yield Field(folder, own, tiny_agent(folder, ATTACKER))


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
    await client.prompt("thief", within=_SECONDS)
    chunks = client.updates(client.session_id)
    return str([each["content"]["text"] for each in chunks if "content" in each][-1])


@pytest.mark.hazard("P17")
async def test_an_agent_gets_at_no_descriptor_or_memory_of_run_and_its_bridge(field: Field) -> None:
    code, said = await field.command("run", "thief", "--", *field.agent)
    assert code == 0, said
    assert stolen(next(line for line in said.splitlines() if line.startswith("{"))) == []


@pytest.mark.hazard("P17")
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


@pytest.mark.hazard("P17")
async def test_an_agent_gets_at_no_descriptor_or_memory_of_a_kept_bridge_and_its_waiter(
    field: Field,
) -> None:
    async with field.bridge("--keep", "1h") as client:
        assert stolen(await thief_said(client)) == []


@pytest.mark.hazard("P17")
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
        await gone(bridge, within=_SECONDS)


@pytest.mark.hazard("V6")
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
                with anyio.fail_after(_SECONDS):
                    await until(result.exists, within=_SECONDS)
            finally:
                client.terminate(signal.SIGCONT)
            assert "agents and what they start" in result.read_text()


@pytest.mark.hazard("V6", "C18")
@pytest.mark.parametrize("way", ["socket", "namespace", "command"])
async def test_what_outlives_its_guard_and_bridge_can_not_answer_in_the_bridge_that_is_next(
    field: Field, way: str
) -> None:
    """It has a session of its own, kills both at once, and has no ancestor that is marked."""
    result = field.folder / "said"
    async with field.bridge() as client:
        await field.listening(client)
        client.send_prompt(f"heir {result} {way}")
        assert await client.wait(within=_SECONDS) == -signal.SIGKILL
    async with field.bridge() as second:
        await field.listening(second)
        second.side.handlers["session/request_permission"] = unanswered
        running = second.send_prompt("wants")
        request = await second.until_request("session/request_permission", within=_SECONDS)
        with anyio.fail_after(_SECONDS):
            await until(result.exists, within=_SECONDS)
        said = json.loads(result.read_text())
        assert said["parent"] not in said["dead"]
        assert not said["raised"]
        refusal = "agents and what they start" if way != "command" else "an agent"
        assert refusal in said["answer"]
        assert second.recording.answers(running) == []
        second.answer(request["id"], REJECTED)
        assert (await second.answer_to(running, _SECONDS))["result"]["stopReason"] == "end_turn"
        assert "reject_once" in second.text()


@pytest.mark.hazard("V6")
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
            answer = await second.answer_to(request, within=_SECONDS)
            assert "no acp-bridge of yours" in answer["error"]["data"]["details"]
        code, said = await field.command("send", short, "for the agent alone")
        assert code == 0, said
        code, said = await field.command("cancel", short)
        assert (code, said.startswith(f"Cancelled the turn in session {short}")) == (0, True)
        assert (await client.answer_to(running))["result"]["stopReason"] == "cancelled"
    assert not heard.exists()


@pytest.mark.hazard("P17")
async def test_an_agent_s_tool_gets_at_no_stream_of_its_own_agent_or_another(field: Field) -> None:
    async with field.bridge(), field.bridge() as client:
        await client.prompt("meddle", within=_SECONDS)
        chunks = client.updates(client.session_id)
        found = json.loads([each["content"]["text"] for each in chunks if "content" in each][-1])
    assert len(found) >= 4
    assert [each for each in found if isinstance(each[2], int)] == []


@pytest.mark.hazard("P17")
async def test_an_agent_can_not_answer_in_the_place_of_a_hook(field: Field) -> None:
    done = field.folder / "done"
    wait = f"while [ ! -e {done} ]; do sleep 0.02; done"
    field.home.mkdir(mode=0o700)
    (field.home / "hooks.toml").write_text(f"[[PermissionRequest]]\ncommand = {wait!r}\n")
    for_commoner(field.home)
    async with field.bridge() as client:
        await client.prompt(f"permit {done}", within=_SECONDS)
        assert len(client.recording.requests("session/request_permission")) == 1
        said = str(client.updates(client.session_id)[-1])
    assert "reject_once" in said
