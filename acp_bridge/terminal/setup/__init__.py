"""`acp-bridge setup`: shows or writes the settings by which an editor starts this installation.

Each editor has a small file here: what to paste, where, and what to do in the editor then. Settings
that are plain JSON can be written: jsonc.py edits the text, settings_file.py replaces the file.
"""
