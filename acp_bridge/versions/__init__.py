"""Version 2 of ACP beside version 1. Sans-IO.

The bridge itself speaks version 1. At the end of a client or an agent that speaks version 2 stands
a translator: messages go in, messages of the other version come out (docs/versions.md).
"""
