"""`acp-bridge demo`: the main job before your eyes, checked on the bytes that a client recorded.

The way to read it: play.py, steps.py (the story), checks.py (what must hold).
"""

from acp_bridge.demo.command import main

__all__ = ["main"]
