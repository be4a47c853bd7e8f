"""Agents that do not come to a session, and what people are told of each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TERMINAL: Final = "run the same command in a terminal, and read what it says"
_SPEAKS: Final = "does it speak ACP? Many agents need an argument for that, such as acp or --acp"
_STDERR: Final = "the last lines of its stderr:"
_STDOUT: Final = "what it wrote to stdout:"
_TOO_OLD: Final = "update the agent: it may be too old"
_AGAIN: Final = "install the agent again"
_PATH: Final = "; if a terminal finds it, --login-shell-path on takes its PATH"

_PY: Final = """#!/usr/bin/env python3
import json, os, signal, sys
def answer(message, **said):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
CAN = {"protocolVersion": 1, "agentCapabilities": {}}
"""


@dataclass(frozen=True, slots=True)
class Broken:
    """An agent that is broken in one way."""

    #: writes it into a folder and returns its command.
    make: Callable[[Path], list[str]]
    #: what is told, by lines; {program}: the first word of the command.
    told: tuple[str, ...]
    #: it answers `initialize`, and fails at the session.
    later: bool = False
    #: it says nothing, so the time of the start has to be over.
    silent: bool = False

    def details(self, command: list[str]) -> list[str]:
        return [line.format(program=command[0]) for line in self.told]


def _file(content: str | bytes, *, mode: int = 0o755, name: str = "agent") -> object:
    def make(folder: Path) -> list[str]:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return [str(path)]

    return make


def _folder(folder: Path) -> list[str]:
    (folder / "agent").mkdir()
    return [str(folder / "agent")]


def _link(folder: Path) -> list[str]:
    (folder / "agent").symlink_to("/gone/agent")
    return [str(folder / "agent")]


def _foreign(folder: Path) -> list[str]:
    """A program of this system, with another machine in its head."""
    head = bytearray(Path(shutil.which("true") or "/bin/true").read_bytes()[:4096])
    head[18:20] = b"\xff\xfe"
    return _file(bytes(head))(folder)  # type: ignore[operator, no-any-return]


def _named(*words: str) -> Callable[[Path], list[str]]:
    return lambda folder: list(words)


def _sh(*lines: str, name: str = "agent") -> object:
    return _file("\n".join(("#!/bin/sh", *lines, "")), name=name)


def _py(*lines: str) -> object:
    return _file("\n".join((_PY, *lines, "")))


_LOOP: Final = "for message in map(json.loads, sys.stdin):"
_START: Final = "the agent could not be started: "
_ENDED: Final = "agent ended before it answered initialize"
_AFTER: Final = (
    "    if message['method'] == 'initialize':",
    "        answer(message, result=CAN)",
    "        continue",
)
_REFUSED: Final = "agent answered session/new with an error: "
_NO_ACP: Final = "agent wrote something that is not ACP, and ended before it answered initialize"


def _refuses(error: object) -> object:
    """An agent that answers `session/new` with this error."""
    return _py(_LOOP, *_AFTER, f"    answer(message, error={error!r})")


_OPTIONS: Final = ["echo '  --error-format X' >&2"] * 3
_USAGE: Final = [f"echo '  --option{number}  an option' >&2" for number in range(200)]

_ROWS: Final[dict[str, tuple[object, tuple[str, ...]]]] = {
    "a path that leads nowhere": (
        _named("/gone/agent"),
        (_START + "{program} is not there", "correct the path, or install the agent"),
    ),
    "a name that is not in the PATH": (
        _named("no-such-agent"),
        (
            _START + "{program} is not found in the PATH",
            "install it, or give the whole path of its program" + _PATH,
        ),
    ),
    "a known agent that is not installed": (
        _named("goose", "acp"),
        (
            _START + "goose is not found in the PATH",
            "Goose is not installed: see https://block.github.io/goose",
        ),
    ),
    "a folder": (_folder, (_START + "{program} is a folder", "name the program in it")),
    "a link to nothing": (_link, (_START + "{program} is a link to nothing", _AGAIN)),
    "no right to execute": (
        _file("#!/bin/sh\n", mode=0o644),
        (_START + "{program} is not executable", "run: chmod +x {program}"),
    ),
    "an interpreter that is gone": (
        _file("#!/gone/python3\n"),
        (
            _START + "{program} needs python3, which is not where its first line says",
            f"{_AGAIN}, or python3",
        ),
    ),
    "a program that env does not find": (
        _file("#!/usr/bin/env no-such-node\n"),
        (
            _START + "{program} needs no-such-node, which is not found in the PATH",
            "install no-such-node" + _PATH,
        ),
    ),
    "a program that env -S does not find": (
        _file("#!/usr/bin/env -S no-such-node --quiet\n"),
        (
            _START + "{program} needs no-such-node, which is not found in the PATH",
            "install no-such-node" + _PATH,
        ),
    ),
    "no first line": (
        _file("echo hello\n"),
        (
            _START + "{program} has no first line that names what runs it",
            "begin the file with a line such as #!/bin/sh or #!/usr/bin/env node",
        ),
    ),
    "line ends of Windows": (
        _file("#!/bin/sh\r\necho hello\r\n"),
        (
            _START + "the first line of {program} ends as on Windows (CRLF)",
            "save the file with the line ends of Unix (LF)",
        ),
    ),
    "line ends of Windows behind env": (
        _file("#!/usr/bin/env python3\r\nprint()\r\n"),
        (
            _START + "the first line of {program} ends as on Windows (CRLF)",
            "save the file with the line ends of Unix (LF)",
        ),
    ),
    "a byte order mark": (
        _file(b"\xef\xbb\xbf#!/bin/sh\n"),
        (
            _START + "{program} has a byte order mark (BOM) before its #!",
            "save it without the mark",
        ),
    ),
    "an empty file": (_file(""), (_START + "{program} is an empty file", _AGAIN)),
    "a program of another machine": (
        _foreign,
        (
            _START + "{program} is built for another kind of machine or system",
            "install the agent for this machine",
        ),
    ),
    "a program for Windows": (
        _file(b"MZ\x90\x00"),
        (_START + "{program} is a program for Windows", "install the agent for this system"),
    ),
    "it ends with a reason": (
        _sh("echo 'fatal: no model: see --help' >&2", "exit 3"),
        (f"{_ENDED} (exit code 3)", _STDERR, "  fatal: no model: see --help", _TERMINAL),
    ),
    "it ends without a word": (_sh("exit 0"), (f"{_ENDED} (exit code 0)", _SPEAKS)),
    "it ends without a word, and badly": (_sh("exit 9"), (f"{_ENDED} (exit code 9)", _TERMINAL)),
    "a signal ends it": (_sh("kill -SEGV $$"), (f"{_ENDED} (signal SIGSEGV)", _TERMINAL)),
    "a usage of 200 lines behind its error": (
        _sh("echo 'error: unknown option --acp' >&2", *_USAGE, "exit 2"),
        (
            f"{_ENDED} (exit code 2)",
            _STDERR,
            "  error: unknown option --acp",
            "  ...",
            *(f"  --option{number} an option" for number in (197, 198, 199)),
            _TERMINAL,
        ),
    ),
    "an error in the middle of a trace": (
        _sh(
            "cat >&2 <<'END'",
            "node:internal/modules/loader:1148",
            "  throw err;",
            "  ^",
            "",
            "Error: Cannot find module 'x'",
            "    at Module._resolve (node:internal:1145:15)",
            "    at Module._load (node:internal:986:27) {",
            "  requireStack: []",
            "}",
            "",
            "Node.js v20.11.1",
            "END",
            "exit 1",
        ),
        (
            f"{_ENDED} (exit code 1)",
            _STDERR,
            "  Error: Cannot find module 'x'",
            "  ...",
            "  requireStack: []",
            "  }}",
            "  Node.js v20.11.1",
            _TERMINAL,
        ),
    ),
    "a secret in its last line": (
        _sh("echo 'bad key sk-averysecretvalue' >&2", "exit 1"),
        (f"{_ENDED} (exit code 1)", _STDERR, "  bad key ***", _TERMINAL),
    ),
    "a program that knows nothing of ACP": (
        _sh("echo a", "echo b"),
        (
            "agent wrote something that is not ACP, and ended before it answered initialize"
            " (exit code 0)",
            _STDOUT,
            "  a",
            "  b",
            _SPEAKS,
        ),
    ),
    "a program that waits at a terminal's prompt": (
        _sh("echo 'What shall we do?'", "cat > /dev/null"),
        (
            "agent wrote something that is not ACP, and did not answer initialize within 1 s",
            _STDOUT,
            "  What shall we do?",
            _SPEAKS,
        ),
    ),
    "no word at all": (
        _sh("cat > /dev/null"),
        ("agent did not answer initialize within 1 s", _SPEAKS),
    ),
    "a known agent without its argument": (
        _sh("cat > /dev/null", name="opencode"),
        (
            "opencode did not answer initialize within 1 s",
            "opencode speaks ACP with an argument: opencode acp",
        ),
    ),
    "a program that is taken for an agent": (
        _sh("echo 'error: no terminal' >&2", "exit 1", name="claude"),
        (
            "claude ended before it answered initialize (exit code 1)",
            _STDERR,
            "  error: no terminal",
            "claude does not speak ACP; claude-agent-acp does (run: npm install -g"
            " @agentclientprotocol/claude-agent-acp)",
        ),
    ),
    "it refuses to begin": (
        _py(
            _LOOP,
            "    answer(message, error={'code': -32603, 'message': 'Internal error',"
            " 'data': {'details': 'the config is broken'}})",
        ),
        (
            "agent answered initialize with an error: Internal error: the config is broken",
            _TOO_OLD,
        ),
    ),
    "its error is a text": (
        _py(_LOOP, "    answer(message, error='no config')"),
        (
            "agent answered initialize with an error: no config",
            _TOO_OLD,
        ),
    ),
    "it refuses a session": (
        _py(
            _LOOP,
            *_AFTER,
            "    print('boom', file=sys.stderr, flush=True)",
            "    answer(message, error={'code': -32603, 'message': 'Internal error',"
            " 'data': {'details': 'no such model'}})",
        ),
        (
            "agent answered session/new with an error: Internal error: no such model",
            _STDERR,
            "  boom",
            _TERMINAL,
        ),
    ),
    "it ends instead of a session": (
        _py(
            _LOOP,
            *_AFTER,
            "    print('boom', file=sys.stderr, flush=True)",
            "    os._exit(4)",
        ),
        (
            "agent ended before it answered the request for a session (exit code 4)",
            _STDERR,
            "  boom",
            _TERMINAL,
        ),
    ),
    "a usage of 200 lines behind a reason that no word marks": (
        _sh("echo 'the folder is not trusted' >&2", *_USAGE, "exit 2"),
        (
            f"{_ENDED} (exit code 2)",
            _STDERR,
            "  the folder is not trusted",
            "  ...",
            *(f"  --option{number} an option" for number in (197, 198, 199)),
            _TERMINAL,
        ),
    ),
    "options that are named like errors": (
        _sh(
            "echo 'the folder is not trusted' >&2", *["echo '  --error-format X' >&2"] * 3, "exit 2"
        ),
        (
            f"{_ENDED} (exit code 2)",
            _STDERR,
            "  the folder is not trusted",
            *["  --error-format X"] * 3,
            _TERMINAL,
        ),
    ),
    "a trace whose last line is the reason": (
        _py(
            "def start():",
            "    raise RuntimeError('no model is set')",
            "sys.tracebacklimit = 1",
            "start()",
        ),
        (
            f"{_ENDED} (exit code 1)",
            _STDERR,
            '  File "{program}", line 8, in start',
            "  raise RuntimeError('no model is set')",
            "  RuntimeError: no model is set",
            _TERMINAL,
        ),
    ),
    "an error in the middle of a log": (
        _sh(
            "echo '12:00:00 INFO start' >&2",
            "echo '12:00:01 FATAL no key' >&2",
            *["echo '12:00:02 INFO stop' >&2"] * 4,
            "exit 1",
        ),
        (
            f"{_ENDED} (exit code 1)",
            _STDERR,
            "  12:00:01 FATAL no key",
            "  ...",
            *["  12:00:02 INFO stop"] * 3,
            _TERMINAL,
        ),
    ),
    "an error in the middle of a log of JSON": (
        _sh(
            "cat >&2 <<'END'",
            '{"level":30,"msg":"start"}',
            '{"level":50,"msg":"no key"}',
            *['{"level":30,"msg":"stop"}'] * 4,
            "END",
            "exit 1",
        ),
        (
            f"{_ENDED} (exit code 1)",
            _STDERR,
            '  {{"level":50,"msg":"no key"}}',
            "  ...",
            *['  {{"level":30,"msg":"stop"}}'] * 3,
            _TERMINAL,
        ),
    ),
    "colours and progress on its stderr": (
        _sh(
            r"printf '10%%\r20%%\r\033[31mError:\033[0m no \007net\n' >&2",
            "exit 1",
        ),
        (f"{_ENDED} (exit code 1)", _STDERR, r"  Error: no \x07net", _TERMINAL),
    ),
    "bytes that are no text": (
        _sh(r"printf 'error: caf\351\n' >&2", "exit 1"),
        (f"{_ENDED} (exit code 1)", _STDERR, "  error: caf\N{REPLACEMENT CHARACTER}", _TERMINAL),
    ),
    "a program that its script does not find": (
        _sh("exec no-such-node index.js 2>/dev/null"),
        (
            f"{_ENDED} (exit code 127)",
            "install the program that it did not find; if a terminal finds that one,"
            " --login-shell-path on takes its PATH",
        ),
    ),
    "it goes on in the background": (
        _sh("sleep 600 > /dev/null 2>&1 < /dev/null &", "echo 'running in the background' >&2"),
        (f"{_ENDED} (exit code 0)", _STDERR, "  running in the background", _TERMINAL),
    ),
    "it closes its stdout and lives on": (
        _sh("exec > /dev/null", "cat > /dev/null", "sleep 600"),
        ("agent closed its stdin or stdout before it answered initialize", _TERMINAL),
    ),
    "JSON that is no ACP": (
        _sh("""echo '{"level": "error", "msg": "no key"}'"""),
        (
            f"{_NO_ACP} (exit code 0)",
            _STDOUT,
            '  {{"level": "error", "msg": "no key"}}',
            _SPEAKS,
        ),
    ),
    "a version of itself that does not know its argument": (
        lambda folder: [*_sh("echo usage: agent", "exit 2")(folder), "--acp"],  # type: ignore[operator]
        (f"{_NO_ACP} (exit code 2)", _STDOUT, "  usage: agent", _TOO_OLD),
    ),
    "its answer is no object": (
        _py(_LOOP, "    answer(message, result=None)"),
        ("agent does not speak ACP version 1", _TOO_OLD),
    ),
    "the message of its error is a number": (
        _py(_LOOP, "    answer(message, error={'code': -32603, 'message': 5})"),
        (
            "agent answered initialize with an error: the agent's answer can't be read: its error"
            " says nothing",
            _TOO_OLD,
        ),
    ),
    "it refuses a session with a text": (
        _refuses({"code": 1, "message": "No", "data": "no quota"}),
        (_REFUSED + "No: no quota", _TERMINAL),
    ),
    "it refuses a session with a list": (
        _refuses({"code": -32602, "message": "Invalid params", "data": [{"path": ["cwd"]}]}),
        (_REFUSED + 'Invalid params: [{{"path":["cwd"]}}]', _TERMINAL),
    ),
    "it refuses a session at great length": (
        _refuses({"code": 1, "message": "No", "data": {"details": "x" * 100_000}}),
        (_REFUSED + f"No: {'x' * 300}...", _TERMINAL),
    ),
    "it refuses a session in several lines": (
        _refuses({"code": 1, "message": "No:\n \x1b[1mnone"}),
        (_REFUSED + "No: none", _TERMINAL),
    ),
    "its session has no id": (
        _py(_LOOP, *_AFTER, "    answer(message, result={})"),
        (_REFUSED + "the agent gave no session id", _TERMINAL),
    ),
}

BROKEN: Final = {
    name: Broken(
        make,  # type: ignore[arg-type]
        told,
        later="session" in told[0],
        silent="within" in told[0],
    )
    for name, (make, told) in _ROWS.items()
}


def path_without() -> str:
    """The PATH with none of the agents that may be installed here."""
    names = ("goose", "no-such-agent")
    places = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(
        place for place in places if not any(Path(place, name).exists() for name in names)
    )
