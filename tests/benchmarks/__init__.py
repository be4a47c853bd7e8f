"""The figures in the README: `make bench`. Nothing here is asserted in a test."""
