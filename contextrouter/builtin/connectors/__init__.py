"""Built-in connectors: local files, web pages, RSS feeds and HTTP APIs; they enter by entry points as any
plugin does.
"""
