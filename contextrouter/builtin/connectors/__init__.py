"""Built-in connectors: local files, web pages, RSS feeds and HTTP APIs. Entry points register them."""
