"""What people run in a terminal."""
