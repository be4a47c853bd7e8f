"""OpenHands' agent-server, the real one, driven by `agent.openhands`: `make test-openhands`."""
