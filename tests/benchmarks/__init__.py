"""The figures in docs/benchmarks.md: `make bench`. Nothing here is asserted in a test."""
