"""`acp-bridge demo` shows the bridge at work and checks the bytes that a client recorded.

Read play.py first, then steps.py (what the clients do) and checks.py (what must hold).
"""

from acp_bridge.commands.demo.command import main, parser

__all__ = ["main", "parser"]
