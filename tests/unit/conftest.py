"""Fixtures that several unit tests share."""

from tests.support.wire import listen, start

__all__ = ["listen", "start"]
