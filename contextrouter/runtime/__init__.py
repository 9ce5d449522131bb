"""Runtime of a router: plugin registry, lifecycle, thread pool, shutdown and secret masking."""
