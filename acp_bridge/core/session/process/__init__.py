"""The agent processes of one session: given the session, ended, replaced, asleep."""
