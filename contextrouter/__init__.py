"""contextrouter."""
