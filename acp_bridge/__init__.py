"""acp-bridge is started by an ACP client in an agent's place, and outlives the agent behind it."""

__version__ = "0.1.0"
