"""`acp-bridge setup`: what makes an editor start this installation as its agent.

One small file for each editor: what is pasted, where, and what is done in the editor then. Where
that is plain JSON, it can be written: jsonc.py edits the text, settings_file.py keeps the file.
"""
