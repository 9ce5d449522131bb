"""A close that its caller gives up."""

from __future__ import annotations

import asyncio

from contextrouter.contracts import Plugin


async def give_up_closing(plugin: Plugin) -> None:
    """Begin to close a plugin, and cancel this where it waits first."""
    closing = asyncio.create_task(plugin.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
