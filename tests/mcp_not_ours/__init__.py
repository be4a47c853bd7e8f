"""MCP servers that are not ours, from the registries: `make test-mcp`."""
