"""The rows that ``strata faults`` shows, while the run that makes them goes on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from deployments.cli.faults import rows_of
from deployments.faults.matrix import Call, Row, expectation, row
from deployments.faults.run import ROWS
from deployments.lifecycle import Service

ROW = row(expectation("expander", "hangs"), [Call(200, ("RET-5041",), 10.0, whole=True)], 1000.0)
# Writes a row in two parts, the second one when the file "go" is there, and ends.
WRITES = """
import sys, time
from pathlib import Path
folder, line = Path(sys.argv[1]), sys.argv[2].encode()
with (folder / sys.argv[3]).open("ab", buffering=0) as file:
    file.write(line + b"\\n" + line[:9])
    while not (folder / "go").exists():
        time.sleep(0.01)
    file.write(line[9:] + b"\\n" + line[:9])
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    if run := service.last():
        service.stop(run, grace=0)


def test_rows_come_one_by_one_whole_and_until_the_run_ends(service: Service, tmp_path: Path) -> None:
    line = msgspec.json.encode(ROW).decode()
    command = [sys.executable, "-c", WRITES, str(tmp_path), line, ROWS]
    rows: Iterator[Row] = rows_of(service.start(command, url="", config="", detach=False), tmp_path)
    assert next(rows) == ROW
    (tmp_path / "go").touch()
    assert list(rows) == [ROW]


def test_a_run_that_ends_before_its_first_row_has_none(service: Service, tmp_path: Path) -> None:
    run = service.start([sys.executable, "-c", "pass"], url="", config="", detach=False)
    assert list(rows_of(run, tmp_path)) == []
