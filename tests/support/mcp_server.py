"""An MCP server on the official SDK, for tests: `mcp_server.py stdio`, or `mcp_server.py http`,
which serves /mcp (streamable HTTP) and /sse on a loopback port, told in its first line of output.

Tools that take `tell` (a FIFO) write a line into it when they have begun, and when they are
cancelled.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.support.mcp_offers import ECHO_SCHEMA, NAMES, PIXEL

grown: list[str] = []


async def list_tools(
    ctx: Any, params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    """Two pages."""
    names, following = NAMES + grown, None
    if params is not None and params.cursor == "second":
        names = names[4:]
    else:
        names, following = names[:4], "second"
    tools = [
        types.Tool(
            name=name,
            description=f"The tool {name}.",
            input_schema=ECHO_SCHEMA if name == "echo" else {"type": "object"},
            annotations=types.ToolAnnotations(read_only_hint=True),
        )
        for name in names
    ]
    return types.ListToolsResult(tools=tools, next_cursor=following)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    match params.name:
        case "echo":
            text = arguments["text"]
            structured = {"said": text}
            return types.CallToolResult(content=[_text(text)], structured_content=structured)
        case "picture":
            image = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
            return types.CallToolResult(content=[_text("a pixel"), image])
        case "documents":
            return types.CallToolResult(content=_documents())
        case "fail":
            return types.CallToolResult(content=[_text("no such thing")], is_error=True)
        case "refuse":
            raise MCPError(code=types.INVALID_PARAMS, message="`text` is missing")
        case "place":
            place = {"cwd": os.getcwd(), "env": dict(os.environ)}
            return types.CallToolResult(content=[_text(json.dumps(place))])
        case "headers":
            return types.CallToolResult(content=[_text(ctx.request.headers["x-key"])])
        case "wait":
            await _wait(arguments["tell"])
        case "grow":
            grown.append("grown")
            await ctx.session.send_tool_list_changed()
            return types.CallToolResult(content=[_text("grown")])
        case "die":
            os._exit(3)
    raise MCPError(code=types.INVALID_PARAMS, message=f"no tool {params.name}")


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _documents() -> list[types.ContentBlock]:
    notes = types.TextResourceContents(uri="memo://notes", text="buy milk", mime_type="text/plain")
    disk = types.BlobResourceContents(uri="memo://disk", blob="AAAA", mime_type="image/x-disk")
    return [
        types.EmbeddedResource(type="resource", resource=notes),
        types.EmbeddedResource(type="resource", resource=disk),
        types.ResourceLink(
            type="resource_link", uri="memo://plan", name="plan", description="what to do"
        ),
        types.AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
    ]


async def _wait(tell: str) -> None:
    def say(line: str) -> None:
        Path(tell).write_text(f"{line}\n")

    say("begun")
    try:
        await anyio.sleep_forever()
    finally:
        say("cancelled")


server: Server[Any] = Server("tests", on_list_tools=list_tools, on_call_tool=call_tool)
OPTIONS = server.create_initialization_options(NotificationOptions(tools_changed=True))


async def serve_stdio() -> None:
    print("the server begins", file=sys.stderr)
    async with stdio_server() as (received, to_send):
        await server.run(received, to_send, OPTIONS)


async def serve_http() -> None:
    sse = SseServerTransport("/messages/")

    async def talk(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(streams[0], streams[1], OPTIONS)
        return Response()

    app = server.streamable_http_app()
    app.routes.extend([Route("/sse", talk), Mount("/messages/", sse.handle_post_message)])
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    anyio.run(serve_stdio if sys.argv[1] == "stdio" else serve_http)
