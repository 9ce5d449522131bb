"""Helpers for tests: the example, real servers on the loopback address, engines made by hand."""
