"""The local service as processes: started in a session of its own, found again by a state file, stopped by its id.

Everything that the service starts (Ray's servers, its workers, a proxy) stays in the session of the process that was
started here, so "all of it" is the set of processes with that session id. A state file is stale when the leader's id is
gone or belongs to another process by now.
"""

import os
import random
import socket
import ssl
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import httpx
import msgspec
import psutil

from contracts.errors import ConfigError
from deployments.openapi import Readiness

_POLL = 0.2
_ASK_S = 5.0
# Trusts nobody: a service here has no TLS, and reading the authorities' certificates takes 20 ms of CPU a question.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Start times are known in clock ticks of 10 ms.
_SAME_START = 0.05
_KILL_PATIENCE = 10.0
_TAIL_LINES = 5
# Below those that systems give to outgoing connections, so that a free one stays free until somebody listens.
_FREE_PORTS = range(20_000, 32_000)


class Run(msgspec.Struct, frozen=True):
    """A service that was started.

    Args:
        pid: The leader's process id, which is also the session id of all its processes.
        started: The leader's start time, seconds since the epoch.
        url: Where it answers.
        config: Its settings file.
        log: Its log file.
    """

    pid: int
    started: float
    url: str
    config: str
    log: str

    def is_alive(self) -> bool:
        """Whether the leader runs; a process that got the same id later is not the leader."""
        with suppress(psutil.Error):
            leader = self._leader()
            return leader is not None and leader.status() != psutil.STATUS_ZOMBIE
        return False

    def processes(self) -> list[psutil.Process]:
        """Its living processes, the leader among them."""
        if psutil.pid_exists(self.pid) and self._leader() is None:
            return []  # the id, and with it the session, belongs to somebody else by now
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ours = os.getsid(process.pid) == self.pid and process.create_time() > self.started - _SAME_START
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _leader(self) -> psutil.Process | None:
        with suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            if abs(leader.create_time() - self.started) < _SAME_START:
                return leader
        return None

    def readiness(self) -> Readiness | None:
        """What it answers to ``/readyz``; ``None`` while it does not answer."""
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=_ASK_S, verify=_NO_TLS)
            return msgspec.json.decode(answer.content, type=Readiness)
        except (httpx.HTTPError, msgspec.DecodeError):
            return None

    def tail(self) -> str:
        """The last lines of its log, those of tracebacks left out."""
        try:
            lines = Path(self.log).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        telling = [line for line in lines if line and not line.startswith((" ", "\t", "Traceback"))]
        return "\n".join(telling[-_TAIL_LINES:])


class Service:
    """The one service of a data folder.

    Args:
        folder: Where its state file and its log lie; made when a service is started.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = folder / "service.json"
        self._child: subprocess.Popen[bytes] | None = None

    def last(self) -> Run | None:
        """The run that the state file tells of, alive or not; ``None`` when there is none."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=Run)
        except (OSError, msgspec.DecodeError):
            return None

    def current(self) -> Run | None:
        """The run whose leader is alive, or ``None``."""
        run = self.last()
        return run if run and run.is_alive() else None

    def start(self, command: Sequence[str], *, url: str, config: str, detach: bool) -> Run:
        """Start a process as the leader of a new session, its output going to the log.

        Args:
            command: Program and arguments.
            url: Where it will answer.
            config: Its settings file.
            detach: Whether it may outlive this process; else its standard input ends when this process does.

        Raises:
            ConfigError: A service is running already.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if running := self.current():
            raise _running_already(running)
        if stale := self.last():
            self.stop(stale, grace=0)
        log = self._folder / "service.log"
        with log.open("wb") as output:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        pid = self._child.pid
        run = Run(pid, psutil.Process(pid).create_time(), url, config, str(log))
        try:
            self._write(run)
        except FileExistsError:
            self._kill(run)
            raise _running_already(self.last() or run) from None
        return run

    def wait_up(self, run: Run, timeout: float) -> Readiness:
        """Wait until every stage of a run answers, whether there is something in the index or not.

        Args:
            run: What :meth:`start` returned.
            timeout: Seconds.

        Raises:
            ConfigError: It stopped, or it is not up in time; with the last lines of its log.
        """
        end = time.monotonic() + timeout
        while True:
            readiness = run.readiness()
            if readiness and all(state == "ok" for state in readiness.stages.values()):
                return readiness
            if not run.is_alive():
                raise ConfigError(f"The service stopped while it started.\n{run.tail()}", remedy=f"See {run.log}")
            if time.monotonic() > end:
                raise ConfigError(
                    f"The service is not up after {timeout:.0f} s.\n{run.tail()}", remedy=f"See {run.log}"
                )
            time.sleep(_POLL)

    def wait_end(self, run: Run) -> None:
        """Wait until the leader of a run is gone."""
        while run.is_alive():
            time.sleep(_POLL)

    def stop(self, run: Run, grace: float) -> None:
        """Stop a run and wait until all its processes are gone.

        Args:
            run: From :meth:`start` or :meth:`last`.
            grace: Seconds that the leader gets to stop the rest in order; whatever lives then is killed.
        """
        if grace and run.is_alive():
            with suppress(psutil.Error):
                psutil.Process(run.pid).terminate()
            end = time.monotonic() + grace
            while run.is_alive() and time.monotonic() < end:
                time.sleep(_POLL)
        self._kill(run)
        if (last := self.last()) and last.pid == run.pid:
            self._state.unlink(missing_ok=True)

    def _kill(self, run: Run) -> None:
        end = time.monotonic() + _KILL_PATIENCE
        while living := run.processes():
            if time.monotonic() > end:
                ids = ", ".join(str(process.pid) for process in living)
                raise ConfigError(f"Processes {ids} can't be stopped.", remedy=f"kill -9 {ids.replace(',', '')}")
            for process in living:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(living, timeout=_POLL)

    def _write(self, run: Run) -> None:
        """Write the state file whole, or raise ``FileExistsError``: of two that start at once, one wins."""
        with NamedTemporaryFile(dir=self._folder, prefix=".service", delete=False) as file:
            file.write(msgspec.json.encode(run))
        try:
            os.link(file.name, self._state)
        finally:
            Path(file.name).unlink()


def _running_already(run: Run) -> ConfigError:
    return ConfigError(f"A service is running at {run.url} (process {run.pid}).", remedy="Stop it: strata down")


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that a server can listen at."""
    return next(port for port in random.sample(_FREE_PORTS, len(_FREE_PORTS)) if port_is_free(host, port))
