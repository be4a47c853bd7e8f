"""What a session looks like: updates become blocks, blocks become lines, or Markdown. No I/O."""
