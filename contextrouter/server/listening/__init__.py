"""Listens for connections, and passes each request to the current server."""
