"""One turn: the model answers, its tool calls are allowed and run, and it answers again."""
