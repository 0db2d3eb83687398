"""A real PostgreSQL for tests, run from Debian's binaries in a folder of its own; no service of the system is touched.

Without the binaries the tests that need it are skipped, or fail where STRATA_TESTS_NEED_POSTGRES is 1 (in CI).
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import psutil
import pytest

from database.config import DatabaseConfig
from database.engine import Database
from deployments.lifecycle import free_port

PASSWORD = "hush-42"
_READY_SECONDS = 60
# Nothing here has to outlive a power cut.
_QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=60")


class Postgres:
    """One server of its own, on a port of this machine.

    Args:
        binaries: Folder of ``initdb`` and ``postgres``.
    """

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        # Not below pytest's folder, which only its owner may enter: the server refuses to run as root.
        self._folder = Path(tempfile.mkdtemp(prefix="strata-postgres-"))
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._folder, self._user, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        secret = self._folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        secret.chmod(0o644)
        made = self._run("initdb", "-D", "data", "-U", "strata", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8",
                         "-A", "scram-sha-256", "--pwfile=password")  # fmt: skip
        assert made.wait() == 0, self.log()

    @property
    def url(self) -> str:
        """Of its one database, with the password."""
        return f"postgresql://strata:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = [part for setting in _QUICK for part in ("-c", setting)]
        self._process = self._run(
            "postgres", "-D", "data", "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder), *settings
        )
        deadline = time.monotonic() + _READY_SECONDS
        while self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)).wait() != 0:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()

    def stop(self) -> None:
        """Close all connections and end."""
        if self._process:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it hang: it takes connections, as the kernel does that, and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self._folder)

    def log(self) -> str:
        """What its programs have said."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process
        server = psutil.Process(self._process.pid)
        for process in (server, *server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # Its workers come and go.
                process.send_signal(number)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / program, *arguments],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
            )


@pytest.fixture(scope="session")
def postgres_binaries() -> Path:
    """Debian's newest PostgreSQL server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        unmet = pytest.fail if os.environ.get("STRATA_TESTS_NEED_POSTGRES") == "1" else pytest.skip
        unmet("There is no PostgreSQL here. apt-get install postgresql")
    return found[-1].parent


@pytest.fixture(scope="session")
def postgres_url(postgres_binaries: Path) -> Iterator[str]:
    """Where the one server of the whole run answers; each test keeps to a schema of its own."""
    server = Postgres(postgres_binaries)
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


@pytest.fixture
def own_postgres(postgres_binaries: Path) -> Iterator[Postgres]:
    """A running server for one test that stops it."""
    server = Postgres(postgres_binaries)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """An empty database of each dialect; on PostgreSQL it is a schema of the shared server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'strata.db'}"
        return
    server, schema = request.getfixturevalue("postgres_url"), f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{server}?search_path={schema}"
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    finally:
        await connection.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open database of each dialect with all tables, empty."""
    opened = await Database.open(database_url, DatabaseConfig(migrate_at_start=True))
    yield opened
    await opened.close()
