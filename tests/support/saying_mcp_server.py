"""An MCP server over stdio that says what a file has: `saying_mcp_server.py FILE`.

The file is JSON: the name of a method with the bytes to write for it, as latin-1, `$ID` in them
standing for the request's id. `start` is written first. What the file lacks is answered well.
"""

import json
import sys
from pathlib import Path

SAID = json.loads(Path(sys.argv[1]).read_text("utf-8"))
INFO = {"name": "saying", "version": "1"}
RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": INFO},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "well"}]},
}


def write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("latin-1"))
    sys.stdout.buffer.flush()


write(SAID.get("start", ""))
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method in SAID:
        write(SAID[method].replace("$ID", json.dumps(message.get("id"))))
    elif "id" in message and method is not None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[method]}
        write(json.dumps(answer) + "\n")
