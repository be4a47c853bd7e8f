"""How a session is shown: updates become blocks, and blocks become lines or Markdown. No I/O."""
