"""The tools of a router for agents, over MCP."""
