"""What integration tests share: names of the real graph's fixtures, and the fault matrix."""

import pytest

from deployments.faults.matrix import Row, table
from tests.support.graph import Cluster, Scrape, eventually, log_lines

__all__ = ["Cluster", "Scrape", "eventually", "log_lines"]

_FAULT_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture(scope="session")
def fault_rows(pytestconfig: pytest.Config) -> list[Row]:
    """Rows of the fault matrix, shown at the end of the run."""
    return pytestconfig.stash.setdefault(_FAULT_ROWS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the fault matrix."""
    if rows := config.stash.get(_FAULT_ROWS, []):
        terminalreporter.section("fault matrix")
        for line in table(rows):
            terminalreporter.line(line)
