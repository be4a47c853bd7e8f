"""The built-in agent: an ordinary ACP agent on the official SDK.

It works alone in an editor (`python -m agent`) and behind the bridge, which starts it as a process.
It imports `acp_bridge.wire` for its stdio and nothing else of the bridge.
"""
