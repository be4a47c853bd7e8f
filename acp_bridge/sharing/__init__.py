"""How other clients come: the socket, and sessions of other bridges."""
