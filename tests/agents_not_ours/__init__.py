"""Agents that are not ours, alone and behind the bridge: `make test-agents` (needs npm)."""
