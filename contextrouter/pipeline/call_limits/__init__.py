"""Limits of the calls to sources: slots, circuit breakers, and what a log says of failures."""
