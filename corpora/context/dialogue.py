"""A file of dialogues as a tree: dialogue → conversation (where one is named) → session → turn.

Two formats, both described in ``docs/ingest.md``: sessions with their turns (JSON Lines or a JSON list), and single
turns (JSON Lines), which are grouped by conversation and session.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from contracts.errors import InvalidInput, RequestError
from contracts.query import ContextType
from contracts.records import Document, Node
from corpora.context.lines import Line, decode, read_lines
from corpora.context.nodes import Uris, base_uri, child_uri, document, file_name
from corpora.context.turns import Session, Spoken, Turn, date_text, millis, speakers, spoken, whole_text
from index.abstracts import Entry, abstract, outline
from index.ingest import IngestConfig, Problem

_SPEAKER = re.compile(r"\s*([^:：\n]{1,40}?)\s*[:：]\s*(\S.*)", re.DOTALL)
_SESSION_IN_ID = re.compile(r"(?:^|/)([^:/]+):[^:/]+$")
# Sessions that a conversation, and conversations that the file, tell of in their own L1.
_MAX_LISTED = 200
_MAX_SPEAKERS = 8


class TurnLine(msgspec.Struct, forbid_unknown_fields=True):
    """One utterance by itself; ``title`` is another name of ``date``, ``conv`` of ``conversation``."""

    text: str
    id: str | int = ""
    speaker: str = ""
    session: str | int = ""
    conversation: str | int = ""
    conv: str | int = ""
    date: str | int = ""
    title: str | int = ""
    time: str | int = ""


class _Peek(msgspec.Struct):
    """Tells a session from a turn."""

    turns: msgspec.Raw = msgspec.Raw()


class DialogueSource:
    """Reads a file of dialogues; one ``Document`` a session, and one for each node above.

    Args:
        path: The file.
        space: Owner space of the nodes.
        name: Names the source, and the first segment of its URIs; the file's name without its ending by default.
        context_type: Of all nodes.
        config: Sizes of abstracts.

    Raises:
        InvalidInput: ``path`` is no file.
        InvalidUri: ``space`` is no valid space.
    """

    def __init__(
        self,
        path: Path,
        *,
        space: str = "shared",
        name: str = "",
        context_type: ContextType = "memory",
        config: IngestConfig | None = None,
    ) -> None:
        if not path.is_file():
            raise InvalidInput(f"{path} is no file.", field="path", remedy="Name a JSON or JSON Lines file.")
        self._path = path
        self._base = base_uri(space, name or file_name(path).partition(".")[0])
        self._context_type: ContextType = context_type
        self._config = config or IngestConfig()
        self.source_id = self._base

    def documents(self) -> Iterator[Document | Problem]:
        """The sessions in the order of the file, then the conversations, then the whole; ids are their URIs."""
        whole = _Above(self._base.rpartition("/")[2], self._base, "", "dialogue")
        conversations: dict[str, _Above] = {}
        first_lines: dict[str, int] = {}
        for found in self.sessions():
            if isinstance(found, Problem):
                yield found
                continue
            line, session = found
            above = whole
            if name := str(session.conversation):
                above = conversations.setdefault(
                    name, _Above(name, child_uri(self._base, name), self._base, "conversation")
                )
            uri = child_uri(above.uri, str(session.session_id))
            if (first := first_lines.setdefault(uri, line)) != line:
                yield self._problem(
                    line, f"Session {session.session_id!r} began in line {first}; keep it together.", uri
                )
                continue
            nodes = self._nodes(session, uri, above.uri)
            if not nodes:
                yield self._problem(line, f"Session {session.session_id!r} has no turn with text.", uri)
                continue
            date = date_text(session.date)
            title = ", ".join(filter(None, [nodes[0].name, date]))
            above.add(Entry(title, nodes[0].vector_texts[0]), speakers(session), date)
            yield document(uri, nodes)
        if conversations:
            whole.parts = "conversations and sessions" if whole.count else "conversations"
        for above in conversations.values():
            node = self._above_node(above)
            whole.add(Entry(node.name, node.abstract), above.speakers)
            yield document(node.uri, [node])
        if whole.count:
            yield document(whole.uri, [self._above_node(whole)])

    def sessions(self) -> Iterator[tuple[int, Session] | Problem]:
        """The sessions as they stand in the file, each with the line (or place in a list) it begins at."""
        lines = read_lines(self._path) if self._path.suffix.lower() != ".json" else listed(self._path)
        group: list[TurnLine] = []
        began = 0
        for line in lines:
            try:
                read: Session | TurnLine = (
                    decode(line.data, Session) if _has_turns(line) else decode(line.data, TurnLine)
                )
                key = _key(read) if isinstance(read, TurnLine) else None
            except RequestError as error:
                yield self._problem(line.number, f"{error.message} {error.remedy}".rstrip(), "")
                continue
            if group and key != _key(group[0]):
                yield began, _grouped(group)
                group = []
            if isinstance(read, Session):
                yield line.number, read
            else:
                began = began if group else line.number
                group.append(read)
        if group:
            yield began, _grouped(group)

    def _problem(self, line: int, message: str, document_id: str) -> Problem:
        return Problem(str(self._path), line, message, document_id)

    def _nodes(self, session: Session, uri: str, parent_uri: str) -> list[Node]:
        """The session's node and those of its turns; none when nothing was said."""
        turns = spoken(session)
        if not turns:
            return []
        said = [turn.said for turn in turns]
        date, names = date_text(session.date), speakers(session)
        about = ", ".join([*names, date] if date else names)
        best = session.abstract or abstract(
            "\n\n".join(turn.turn.text for turn in turns), self._config.abstracts, lead=0
        )
        place = {"session": (str(session.session_id),)}
        if session.conversation != "":
            place["conversation"] = (str(session.conversation),)
        node = Node(
            uri=uri,
            parent_uri=parent_uri,
            name=str(session.session_id),
            kind="session",
            context_type=self._context_type,
            category="session",
            abstract=session.abstract or f"{about}: {best}".removeprefix(": "),
            overview=session.overview
            or outline([Entry(about), *(Entry("", each) for each in said)], self._config.abstracts),
            content=whole_text(session, turns),
            search_text="\n".join(filter(None, [*said, date])),
            vector_texts=(best,),
            tags=tuple(session.tags),
            attrs=place | ({"speaker": names} if names else {}),
            created_at=millis(session.date),
            updated_at=millis(session.date),
            has_children=True,
        )
        uris = Uris()
        return [node, *(self._turn(node, turn, number, uris) for number, turn in enumerate(turns, 1))]

    def _turn(self, session: Node, found: Spoken, number: int, uris: Uris) -> Node:
        turn = found.turn
        when = millis(turn.time) or session.created_at
        own = {"id": turn.id, "speaker": turn.speaker}
        return msgspec.structs.replace(
            session,
            uri=uris.child(session.uri, str(turn.id).rpartition("/")[2] or str(number)),
            parent_uri=session.uri,
            name=turn.speaker,
            kind="turn",
            category="event",
            abstract=abstract(found.said, self._config.abstracts),
            overview="",
            content=found.content,
            search_text=found.search_text,
            vector_texts=found.vector_texts,
            attrs={
                **{name: values for name, values in session.attrs.items() if name != "speaker"},
                **{name: (str(value),) for name, value in own.items() if value != ""},
            },
            created_at=when,
            updated_at=when,
            has_children=False,
        )

    def _above_node(self, above: "_Above") -> Node:
        names = ", ".join(list(above.speakers)[:_MAX_SPEAKERS]) or "unnamed speakers"
        span = f", {' – '.join(dict.fromkeys((above.dates[0], above.dates[-1])))}" if above.dates else ""
        return Node(
            uri=above.uri,
            parent_uri=above.parent_uri,
            name=above.name,
            kind=above.kind,
            context_type=self._context_type,
            category=above.kind,
            abstract=f"{above.count} {above.parts} with {names}{span}",
            overview=outline(above.entries, self._config.abstracts),
            has_children=True,
        )


@dataclass
class _Above:
    """What a conversation, or the whole file, keeps of what lies below it."""

    name: str
    uri: str
    parent_uri: str
    kind: str
    parts: str = "sessions"
    count: int = 0
    entries: list[Entry] = field(default_factory=list)
    speakers: dict[str, None] = field(default_factory=dict)
    dates: list[str] = field(default_factory=list)

    def add(self, entry: Entry, speakers: Iterable[str], date: str = "") -> None:
        """Note a child."""
        self.count += 1
        self.speakers.update(dict.fromkeys(speakers))
        self.dates = [*self.dates[:1], *([date] if date else [])]
        if len(self.entries) < _MAX_LISTED:
            self.entries.append(entry)


def listed(path: Path) -> Iterator[Line]:
    """The objects of a JSON file, a list of them or one, numbered from 1.

    Raises:
        InvalidInput: The file can't be read.
    """
    try:
        text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").strip()
        listed = msgspec.json.decode(text, type=list[msgspec.Raw]) if text[:1] == b"[" else [msgspec.Raw(text)]
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"{path} can't be read as JSON: {error}.", field="path", remedy="Write a list of sessions."
        ) from None
    for number, raw in enumerate(listed, 1):
        yield Line(number, bytes(raw))


def _has_turns(line: Line) -> bool:
    try:
        return bytes(msgspec.json.decode(line.data, type=_Peek).turns) != b""
    except (msgspec.MsgspecError, RecursionError):
        return False


def _key(line: TurnLine) -> tuple[str, str]:
    """Conversation and session of a turn.

    Raises:
        InvalidInput: Nothing tells the session.
    """
    in_id = _SESSION_IN_ID.search(str(line.id))
    session = str(line.session) or (in_id[1] if in_id else "") or str(line.date or line.title)
    if not session:
        raise InvalidInput(
            "Nothing tells the session.", field="session", remedy="Give 'session', 'date' or an id as D1:3."
        )
    return str(line.conversation or line.conv), session


def _grouped(lines: Sequence[TurnLine]) -> Session:
    conversation, session = _key(lines[0])
    turns = []
    for line in lines:
        match = None if line.speaker else _SPEAKER.fullmatch(line.text)
        speaker, text = match.groups() if match else (line.speaker, line.text)
        turns.append(Turn(text, speaker, line.id, line.time))
    return Session(session, turns, lines[0].date or lines[0].title, conversation)
