"""What a session looks like in a terminal: updates become blocks, blocks become lines. No I/O."""
