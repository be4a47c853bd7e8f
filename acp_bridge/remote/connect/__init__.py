"""`acp-bridge connect`: an editor here uses a remote bridge, over a connection that may drop."""
