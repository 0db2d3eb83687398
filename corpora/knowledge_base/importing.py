"""Entities, chunks and assets from CSV or JSON Lines, with a report of every row that was refused.

A row stands alone: it is written as a whole or refused as a whole, and a refused row keeps no other from being written.
Rows are written in transactions of ``PAGE`` rows; what a run that dies has written stays, and running it again changes
nothing of that.

In CSV an empty cell is a field that is not given; ``attrs`` and ``spec_check`` are JSON in a cell, and ``attrs.NAME``
is a column for one attribute, several keywords with ``;`` between them.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.errors import InvalidInput
from contracts.records import ModelRef
from corpora.knowledge_base import checks, sql
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.store import Refused, Store
from corpora.knowledge_base.types import Asset, ChunkText, Entity, EntityStatus

Kind = Literal["entities", "chunks", "assets"]
PAGE = 500
# Rows that a report names; it counts all.
_MAX_NAMED = 1000
Item = Entity | ChunkText | Asset
T = TypeVar("T")


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EntityRow(_Row):
    """A row of entities."""

    entity_id: str
    type: str
    status: EntityStatus = "draft"
    name: str = ""
    attrs: dict[str, Any] = {}
    updated_at: int = Field(0, ge=0)


class ChunkRow(_Row):
    """A row of chunks."""

    chunk_id: str
    entity_id: str
    text: str
    chunk_type: str = "text"


class AssetRow(_Row):
    """A row of assets."""

    asset_id: str
    entity_id: str
    asset_type: str
    storage_key: str
    spec_check: dict[str, Any] = {}
    tryon_ready: bool = False
    review_status: str = "pending"
    licence: str = ""


_ROWS: Mapping[Kind, type[_Row]] = {"entities": EntityRow, "chunks": ChunkRow, "assets": AssetRow}
_ITEMS: Mapping[Kind, type[Item]] = {"entities": Entity, "chunks": ChunkText, "assets": Asset}


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that was not written: its line in the file from 1, the field at fault if one is, and why."""

    line: int
    field: str
    reason: str


class ImportReport(msgspec.Struct):
    """What an import did; ``refused`` names the first thousand of ``refused_count``."""

    kind: Kind
    read: int = 0
    written: int = 0
    refused_count: int = 0
    refused: list[RefusedRow] = []

    def refuse(self, line: int, error: InvalidInput) -> None:
        """Note a row that was refused."""
        self.refused_count += 1
        if len(self.refused) < _MAX_NAMED:
            self.refused.append(RefusedRow(line, error.field, f"{error.message} {error.remedy}".rstrip()))


class Importer:
    """Imports files.

    Args:
        store: Where to.
        model: Of the vectors of chunks (K4).
        config: Declared attributes.
    """

    def __init__(self, store: Store, model: ModelRef, config: KnowledgeBaseConfig) -> None:
        self._store = store
        self._model = model
        self._config = config

    async def run(self, account_id: str, kind: Kind, path: Path) -> ImportReport:
        """Import one file; ``.csv`` is read as CSV, anything else as JSON Lines.

        Raises:
            InvalidInput: The file can't be read at all.
        """
        report = ImportReport(kind)
        for page in sql.pages(_rows(path), PAGE):
            ready: list[tuple[int, Item]] = []
            for line, row in page:
                report.read += 1
                try:
                    ready.append((line, self._item(kind, row)))
                except InvalidInput as error:
                    report.refuse(line, error)
            refused = await self._write(account_id, [item for _, item in ready])
            for position, why in refused.items():
                report.refuse(ready[position][0], why)
            report.written += len(ready) - len(refused)
        report.refused.sort(key=lambda row: row.line)
        return report

    def _item(self, kind: Kind, row: dict[str, Any] | InvalidInput) -> Item:
        if isinstance(row, InvalidInput):
            raise row
        try:
            fields = _ROWS[kind].model_validate(row).model_dump()
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise InvalidInput(f"{field or 'The row'}: {first['msg']}.", field=field) from None
        item = _ITEMS[kind](**fields)
        match item:
            case Entity():
                return checks.entity(item, self._config)
            case ChunkText():
                return checks.chunk(item)
            case Asset():
                return checks.asset(item)

    async def _write(self, account_id: str, items: Sequence[Item]) -> Refused:
        if entities := _of(Entity, items):
            await self._store.put_entities(account_id, entities)
        if chunks := _of(ChunkText, items):
            return await self._store.put_chunks(account_id, chunks, self._model, partial=True)
        return await self._store.put_assets(account_id, _of(Asset, items), partial=True)


def _of(kind: type[T], items: Sequence[Item]) -> list[T]:
    return [item for item in items if isinstance(item, kind)]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | InvalidInput]]:
    """The rows of a file with their lines, or why one is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _csv(file) if path.suffix.lower() == ".csv" else _json_lines(file)
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}.", field="path") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not in UTF-8.", field="path", remedy="Save it in UTF-8.") from None


def _json_lines(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any] | InvalidInput]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, _object(line, "")


def _csv(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any] | InvalidInput]]:
    reader = csv.DictReader(lines, strict=True)
    try:
        for cells in reader:
            yield reader.line_num, _from_cells(cells)
    except csv.Error as error:
        yield reader.line_num, InvalidInput(f"No CSV: {error}.", remedy="The rest of the file was not read.")


def _from_cells(cells: Mapping[str | None, Any]) -> dict[str, Any] | InvalidInput:
    row: dict[str, Any] = {}
    for name, cell in cells.items():
        if name is None or cell is None:
            return InvalidInput("The row has not as many cells as the header.")
        if cell == "":
            continue
        if name.startswith("attrs."):
            words = [word.strip() for word in cell.split(";") if word.strip()]
            row.setdefault("attrs", {})[name.removeprefix("attrs.")] = words
        elif name in {"attrs", "spec_check"}:
            value = _object(cell, name)
            if isinstance(value, InvalidInput):
                return value
            row[name] = {**value, **row.get(name, {})}
        else:
            row[name] = cell
    return row


def _object(text: str, field: str) -> dict[str, Any] | InvalidInput:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    return InvalidInput(f"{field or 'The line'} is no JSON object.", field=field)
