"""`acp-bridge connect`: serves an editor here by a bridge elsewhere, over a line that may drop."""
