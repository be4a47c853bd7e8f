"""The prompts of one session: kept, run, paused, hooked; `/queue`."""
