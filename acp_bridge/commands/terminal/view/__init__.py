"""How a session is shown on a terminal: its blocks become lines, or Markdown. No I/O."""
