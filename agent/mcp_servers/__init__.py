"""The MCP servers of a session, through the official `mcp` SDK: one connection a server.

`mcp` costs more than a second to import: it is imported inside functions, and first in a thread
(`agent.mcp_servers.server_set`).
"""
