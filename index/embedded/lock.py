"""One writer at a time on an index folder, whichever process it lives in."""

import fcntl
import os
from pathlib import Path

from contracts.errors import ConfigError


class WriterLock:
    """A lock on a file, let go by the operating system when its process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            ConfigError: Another process, or another index object of this one, holds it.
        """
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise ConfigError(
                f"Process {holder} is writing to the index at {path.parent}.",
                field="index.path",
                remedy="Wait until it is done, or stop it.",
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let the next writer in."""
        self._file.close()
