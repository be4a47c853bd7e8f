"""An MCP server over stdio that starts at once, for it knows no SDK, and misbehaves:
`odd_mcp_server.py BEHAVIOUR...`. Without any it has one tool, `echo`, and behaves.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

BEHAVIOURS = set(sys.argv[1:])
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
NEWEST = "2026-07-28"
#: lists that were asked for
lists = 0


def main() -> None:
    if "stubborn" in BEHAVIOURS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "tidy" in BEHAVIOURS:
        signal.signal(signal.SIGTERM, tidy)
    if "child" in BEHAVIOURS:
        subprocess.Popen(["sleep", "600"], stdin=-3, stdout=-3, stderr=-3)
    if "daemon" in BEHAVIOURS:
        command = ["sh", "-c", "setsid sleep 600 & exit"]
        subprocess.run(command, stdin=-3, stdout=-3, stderr=-3, check=True)
    if "dies" in BEHAVIOURS:
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "silent" not in BEHAVIOURS:
            answer(message["id"], message["method"], message.get("params", {}))
    while BEHAVIOURS & {"stubborn", "tidy"}:
        time.sleep(600)


def tidy(*_: Any) -> None:
    open("tidied", "w").close()
    sys.exit()


def answer(request: Any, method: str, params: dict[str, Any]) -> None:
    if "noisy" in BEHAVIOURS:
        print("Server listening!\n\n{broken")
        print("a warning" * 1000, file=sys.stderr)
    try:
        outcome = {"result": result(method, params)}
    except LookupError as error:
        outcome = {"error": {"code": -32601, "message": f"no {error}"}}
    except Refused:
        outcome = {"error": {"code": -32022, "message": "newer", "data": {"supported": [NEWEST]}}}
    say({"jsonrpc": "2.0", "id": request, **outcome})
    if method == "tools/list" and "dies_idle" in BEHAVIOURS:
        os._exit(3)


class Refused(Exception):
    """The client speaks a version that this server does not know."""


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    global lists
    if method == "server/discover":
        return {"supportedVersions": [NEWEST], "capabilities": {"tools": {}}, **COMPLETE}
    if method == "initialize":
        if "modern" in BEHAVIOURS:
            raise Refused
        if "nonsense" in BEHAVIOURS:
            return {"protocolVersion": 7}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
    if method == "tools/list" and "no_tools" not in BEHAVIOURS:
        lists += 1
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names()]
        following = {"nextCursor": "more"} if "endless" in BEHAVIOURS else {}
        return {"tools": tools, **following, **(COMPLETE if "modern" in BEHAVIOURS else {})}
    if method == "tools/call":
        return call(params["name"], params["arguments"])
    raise LookupError(method)


def names() -> list[str]:
    if "odd_names" in BEHAVIOURS:
        return ["a.b", "a_b", "x" * 100, "x" * 100 + "y"]
    return ["echo", *(["late"] if lists > 1 else [])]


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if "dies_in_call" in BEHAVIOURS:
        os._exit(3)
    if "deaf" in BEHAVIOURS:
        time.sleep(600)
    if "too_long" in BEHAVIOURS:
        print("x" * 400_000, flush=True)
    if "changes" in BEHAVIOURS:
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    content = [{"type": "text", "text": json.dumps([name, arguments])}]
    return {"content": content, **({"resultType": "complete"} if "modern" in BEHAVIOURS else {})}


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
