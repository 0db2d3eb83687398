"""Sessions and their turns, and what makes a turn findable.

Measured on LoCoMo: the vector of a turn is half its own text and half that of it between its neighbours; the date goes
into the keyword text and not into the vector; a session's keyword text is that of all its turns, so that its relevance
can flow down to them.
"""

from datetime import UTC, datetime

import msgspec

from corpora.context.nodes import to_millis

_YEAR_10000 = 253_402_300_800_000


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    """One utterance of a session."""

    text: str
    speaker: str = ""
    id: str | int = ""
    time: str | int = ""


class Session(msgspec.Struct, forbid_unknown_fields=True):
    """A session with its turns in order."""

    session_id: str | int
    turns: list[Turn]
    date: str | int = ""
    conversation: str | int = ""
    abstract: str = ""
    overview: str = ""
    tags: list[str] = []


class Spoken(msgspec.Struct, frozen=True):
    """A turn in its session, in the forms in which it is stored and found.

    Args:
        turn: The turn; it has text.
        said: Who says what.
        content: The turn between its neighbours, under the date.
        search_text: What keyword recall matches: the words and the dates.
        vector_texts: Its own words, and those between its neighbours; the vector is their mean.
    """

    turn: Turn
    said: str
    content: str
    search_text: str
    vector_texts: tuple[str, ...]


def spoken(session: Session) -> list[Spoken]:
    """The turns of a session that hold text, in order."""
    turns = [turn for turn in session.turns if turn.text.strip()]
    said = [f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text for turn in turns]
    date = date_text(session.date)
    around = ["\n".join(said[max(0, number - 1) : number + 2]) for number in range(len(said))]
    return [
        Spoken(
            turn,
            said=own,
            content=_lines(date, near),
            search_text=_lines(turn.text, date_text(turn.time), date),
            vector_texts=tuple(dict.fromkeys((own, near))),
        )
        for turn, own, near in zip(turns, said, around, strict=True)
    ]


def whole_text(session: Session, turns: list[Spoken]) -> str:
    """The text of a session: its date, and all that is said."""
    return _lines(date_text(session.date), *(turn.said for turn in turns))


def speakers(session: Session) -> tuple[str, ...]:
    """Who speaks, in the order of their first words."""
    return tuple(dict.fromkeys(turn.speaker for turn in session.turns if turn.speaker))


def millis(date: str | int) -> int:
    """Milliseconds since the epoch; 0 where the date can't be read, which is no fault of a dialogue."""
    try:
        when = to_millis(date)
    except (ValueError, OverflowError):
        return 0
    return when if 0 < when < _YEAR_10000 else 0


def date_text(date: str | int) -> str:
    """A date in words, as questions name it: 2023-05-08 (8 May 2023)."""
    when = millis(date)
    if isinstance(date, str) and (not when or any(map(str.isalpha, date))):
        return date
    if not when:
        return ""
    day = datetime.fromtimestamp(when / 1000, UTC)
    return f"{date if isinstance(date, str) else day.date()} ({day.day} {day:%B %Y})"


def _lines(*parts: str) -> str:
    return "\n".join(filter(None, parts))
