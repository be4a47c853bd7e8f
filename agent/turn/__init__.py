"""Runs one turn: the model answers, its tool calls run if allowed, and it answers again."""
