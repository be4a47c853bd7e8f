"""An agent that says that it is the built-in one, and waits for the end of its stdin.

It imports next to nothing: for tests of how agents are forked, and not of what they load.
"""

import json
import os


def run(*_: object, **__: object) -> int:
    """Answer each line of stdin as `initialize`; returns 0 at its end."""
    buffer = b""
    while data := os.read(0, 65536):
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            result = {"protocolVersion": 1, "agentInfo": {"name": "acp-bridge-agent"}}
            answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": result}
            os.write(1, json.dumps(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    run()
