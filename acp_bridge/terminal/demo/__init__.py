"""`acp-bridge demo` shows the bridge at work and checks the messages that its clients recorded.

Read play.py first (what the clients do), then checks.py (what must hold).
"""

from acp_bridge.terminal.demo.command import main, parser

__all__ = ["main", "parser"]
