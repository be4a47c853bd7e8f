"""The provider's usage limits: how agents tell them, and the hold behind one."""
