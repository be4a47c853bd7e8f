"""Version 2 of ACP beside version 1. Sans-IO.

The bridge itself speaks version 1. A translator stands between it and each client or agent that
speaks version 2: it takes messages of one version and returns those of the other
(docs/versions.md).
"""
