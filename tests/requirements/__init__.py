"""What a client may expect of whatever it starts, asked of agents alone and behind the bridge."""
