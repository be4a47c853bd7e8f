"""What a session can do beyond the core: a folder for each."""
