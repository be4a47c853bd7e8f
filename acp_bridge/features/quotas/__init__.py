"""The limits of the account, as agents report them: the newest snapshot, and how it is read."""
