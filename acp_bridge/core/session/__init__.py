"""One session of the bridge: the shell around the turn machine."""
