"""acp-bridge: the process that an ACP client starts, and that outlives the agent behind it."""

__version__ = "0.1.0"
