"""The MCP servers of a session, through the official `mcp` SDK: one connection for each.

    session_servers   the servers that the client named last
    server_set        servers that are started and ended together
    server            one server from its start to its end
    mcp_session       an initialized MCP session: tools listed and called
    transports        the ways to a server; stdio is a process of our own
    tool, results     an MCP tool behind the agent's `Tool`, and what it answered
    names, problems   names of tools for the model; what is wrong with a server, in words

`mcp` takes more than a second to import, so it is imported inside functions only, and first in a
thread (`agent.mcp_servers.server_set`).
"""
