"""A server that has no files left says so once a second, and not thousands of times."""

from __future__ import annotations

import asyncio

import pytest

from contextrouter.server.listening.accept_errors import few_accept_errors


@pytest.mark.case("SEC-08")
async def test_errors_of_accepting_are_logged_once_a_second(caplog: pytest.LogCaptureFixture):
    loop = asyncio.get_running_loop()
    with few_accept_errors():
        for _ in range(100):
            error = OSError(24, "Too many open files")
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": error}
            )
        loop.call_exception_handler({"message": "another", "exception": ValueError("seen")})
    texts = [record.getMessage() for record in caplog.records]
    assert sum("No connection can be accepted" in text for text in texts) == 1
    assert any("another" in text for text in texts)
