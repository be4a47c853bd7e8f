"""Keys of the built-in agent's providers: their file and their forms.

No value of a key is printed, logged or put into an error.
"""

from typing import Final

#: the file of keys, in the data folder.
FILE: Final = "keys.env"
