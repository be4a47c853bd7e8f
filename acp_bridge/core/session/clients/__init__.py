"""The clients that have one session: their Stops, the questions to them, their replays."""
