"""What tests share: gates, a client that records, processes found by a mark, the fixture agents."""
