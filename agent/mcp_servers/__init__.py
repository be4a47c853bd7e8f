"""The MCP servers of a session, through the official `mcp` SDK: one connection for each.

    session_servers   the servers that the client named last
    server_set        servers that are started and ended together
    server            one server from its start to its end
    mcp_session       an initialized MCP session: tools listed and called
    heard             between the SDK's session and a connection: what was answered, as it came
    transports        the ways to a server; stdio is a process of our own
    http_client       mends what comes over HTTP, and begins an expired session anew
    framing           finds messages in what a process writes; http_body in an HTTP answer
    messages, pages   our own readers of JSON-RPC, and of a list of tools
    tool, results     an MCP tool behind the agent's `Tool`, and what it answered
    names, problems   names of tools for the model; what is wrong with a server, in words

`mcp` takes more than a second to import, so it is imported inside functions only, and first in a
thread (`agent.mcp_servers.server_set`).
"""
