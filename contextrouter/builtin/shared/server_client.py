"""What plugins that ask a server by a client of its own package have in common."""

from __future__ import annotations

from typing import Any

from contextrouter.builtin.shared.loopback_server import Loopback


class Connected:
    """Closes the client that `open()` made, and the server that an example brought along."""

    _client: Any = None
    _server: Loopback | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._server is not None:
            await self._server.aclose()
