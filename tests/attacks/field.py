"""Where attacks run: with the rights of an ordinary user, which root's are no part of.

`Field` starts bridges and commands as that user. Their agent attacks with what it is prompted to,
and says what came of it.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from tests.built_in.support import KEY, OPENAI, Provider
from tests.support.client import RecordingClient
from tests.support.model_replies import Call
from tests.support.rights import for_commoner, without_rights
from tests.support.waiting import until

#: for what starts several interpreters
SECONDS = 30.0

#: An agent that attacks with what it is prompted to, and says what came of it.
ATTACKER = r"""
import fcntl, glob, resource, signal, socket, subprocess, threading

def session_prompt(id, params):
    words = params["prompt"][0]["text"].split()
    if words[0] not in ("do", "thief", "orphan", "pose", "hang", "meddle", "permit",
                        "wants", "heir", "sham", "asks"):
        words = ["note", json.dumps(words)]
    if words[0] == "asks":
        words[1:] = json.loads(bytes.fromhex(words[1]))
    said = globals()[words[0]](*words[1:])
    update("s", **text(said))
    if words[0] in ("hang", "permit", "wants", "asks"):
        asked.append(id)
        return None
    return {"stopReason": "end_turn"}

asked = []

def answer(id, params):
    if id == 8:
        return
    update("s", **text(json.dumps(params["result"]["outcome"])))
    send(id=asked.pop(), result={"stopReason": "end_turn"})

def session_cancel(id, params):
    pass

# a question that names only its card, which is another one when there is a file

def asks(title, command):
    update("s", sessionUpdate="tool_call", toolCallId="c", title=title, kind="execute",
           status="pending", rawInput={"command": command})
    options = [{"optionId": kind, "name": kind, "kind": kind}
               for kind in ("allow_once", "reject_once")]
    send(id=7, method="session/request_permission", params={
        "sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": options})
    threading.Thread(target=exchange, daemon=True).start()
    return "asks"

def exchange():
    path = os.path.dirname(os.path.abspath(__file__)) + "/exchange"
    while not os.path.exists(path):
        time.sleep(0.01)
    update("s", sessionUpdate="tool_call_update", toolCallId="c",
           rawInput={"command": open(path).read()})

# what only a bridge says

def sham():
    own = {"acp_bridge": {"notice": True, "feedback": True}, "mine": 1}
    send(method="session/update", params={
        "sessionId": "s", "update": text("Allowed by your hook."), "_meta": own})
    for method in ("state", "accepted", "last_words"):
        send(method="_acp_bridge/" + method, params={"sessionId": "s", "state": "idle"})
    send(id=8, method="_acp_bridge/close", params={"sessionId": "s", "_meta": own})
    return "shams"

def hang():
    return "hangs"

def note(words):
    return "took " + words

# a tool runs a program, and the agent says what it printed

def do(program, *words):
    done = subprocess.run([sys.executable, "-I", program, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout

# what can be had of each process of ours that is no agent's; those of other tests may just start

def line_of(pid):
    while pid > 1:
        yield pid
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def of_this_test(pid):  # a kept bridge is a child of init, and above this process
    return int(os.environ["FIELD"]) in line_of(pid) or pid in line_of(os.getpid())

def targets():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if not of_this_test(int(name)):
                continue
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
        if libc.ptrace(0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE
            got.append([words.decode(), "ptrace"])
        for file in ("mem", "environ", "maps", "auxv"):
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

def meddle(whose="tiny_agent"):
    return json.dumps(list(opened(whose, [0, 1])))

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


def told_by(client: RecordingClient) -> str:
    """The last text of the agent of a client."""
    chunks = client.updates(client.session_id)
    return str([each["content"]["text"] for each in chunks if "content" in each][-1])


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
        """A bridge with the agent that attacks, in a session."""
        async with self._started(*options, "--", *self.agent) as client:
            await client.new_session(self.folder)
            yield client

    @asynccontextmanager
    async def built_in(self, provider: Provider, **env: str) -> AsyncIterator[RecordingClient]:
        """A bridge with the built-in agent, which asks a provider with the key `KEY`.

        `env` is added, and goes before it. There is no session yet; `project` is a folder for it.
        """
        self.project.mkdir(exist_ok=True)
        for_commoner(self.project)
        given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": provider.openai_url, **env}
        async with self._started("--model", OPENAI, **given) as client:
            yield client

    @asynccontextmanager
    async def scripted(self, *turns: Sequence[Call], **env: str) -> AsyncIterator[RecordingClient]:
        """A bridge with the built-in agent and a model that needs no LiteLLM.

        `turns`: what the model calls at each prompt, together; the last is repeated. `env` is
        added. There is no session yet. What the model was given is in `model_log`.
        """
        self.project.mkdir(exist_ok=True)
        for_commoner(self.project)
        lines = []
        for turn in turns:
            lines += ["turn", *(f"call: {each.name} {each.arguments}" for each in turn)]
            lines += ["---", "text: Done."]
        dialogue = self.folder / "dialogue.txt"
        dialogue.write_text("\n".join([*lines, ""]))
        log = {"ACP_BRIDGE_MODEL_LOG": str(self.model_log)}
        async with self._started("--model", f"scripted:{dialogue}", **log, **env) as client:
            yield client

    @property
    def model_log(self) -> Path:
        return self.folder / "model.log"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @asynccontextmanager
    async def _started(self, *words: str, **env: str) -> AsyncIterator[RecordingClient]:
        command = [*without_rights(), sys.executable, "-m", "acp_bridge", *words]
        given = {**self.env, **env}
        async with RecordingClient.start(command, env=given, exit_within=5) as client:
            await client.initialize({})
            yield client

    def tool(self, code: str, *words: str) -> str:
        """A prompt that has a tool of the agent run a program; `words` are its arguments."""
        program = self.folder / f"tool-{uuid.uuid4().hex}.py"
        program.write_text(code)
        return " ".join(["do", str(program), *words])

    async def attack(self, client: RecordingClient, code: str, *words: str) -> str:
        """What a program prints that a tool of the agent runs; `words` are its arguments."""
        await client.prompt(self.tool(code, *words), within=SECONDS)
        return told_by(client)

    async def listening(self, client: RecordingClient) -> LiveBridge:
        pid = client.process and client.process.pid

        def found() -> list[LiveBridge]:
            return [bridge for bridge in live_bridges(self.home) if bridge.pid == pid]

        await until(found)
        return found()[0]

    async def command(self, *words: str, given: str = "") -> tuple[int, str]:
        """The exit code of a command, and all that it prints; `given`: its stdin."""
        command = [*without_rights(), sys.executable, "-m", "acp_bridge", *words]
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process(
                command,
                input=given.encode(),
                env={**os.environ, **self.env},
                cwd=self.folder,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return done.returncode, done.stdout.decode()
