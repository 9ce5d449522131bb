"""What a running router needs around its plugins: the registry, their lifecycle, threads, shutdown."""
