"""One ACP session: its prompts in order, its settings, and what it was opened with."""
