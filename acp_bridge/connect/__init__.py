"""`acp-bridge connect`: an editor's end here, a bridge elsewhere, and a line that may drop."""
