"""What a session looks like in any medium: its updates become blocks, and blocks HTML. No I/O."""
