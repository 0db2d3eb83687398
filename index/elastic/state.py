"""The state of an account: which revisions show, and which commits are under way; ``ledger`` keeps it."""

import os
import socket
import time
from collections.abc import Iterable
from uuid import uuid4

import msgspec
import psutil

from index.elastic.queries import Hidden


class Owner(msgspec.Struct, frozen=True):
    """A writer: one index object of one process."""

    host: str
    pid: int
    started: float
    token: str

    @classmethod
    def here(cls) -> "Owner":
        """A new one in this process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), uuid4().hex)

    def dead(self) -> bool:
        """Whether its process is known to have ended; of other machines nothing is known."""
        if self.host != socket.gethostname():
            return False
        try:
            return psutil.Process(self.pid).create_time() != self.started
        except psutil.NoSuchProcess:
            return True


class Pending(msgspec.Struct, frozen=True):
    """A commit under way.

    Args:
        number: Names it; also the first of its revisions.
        last: The last of its revisions; below ``number`` when it only removes.
        source_id: The source it writes.
        owner: Who writes.
        lease: Milliseconds since the epoch until which the owner is taken to be alive.
        shown: Whether it has been switched to: it is to be completed, not undone.
    """

    number: int
    last: int
    source_id: str
    owner: Owner
    lease: int
    shown: bool = False


class Replaced(msgspec.Struct, frozen=True):
    """Revisions that were replaced or removed.

    Args:
        at: When, in milliseconds since the epoch; searches then under way may still find them.
        revisions: Their numbers.
    """

    at: int
    revisions: tuple[int, ...]


class State(msgspec.Struct, frozen=True):
    """The state of an account.

    Args:
        next_revision: Never used before.
        pending: Commits under way.
        replaced: Revisions that lately went.
        undone: First and last revisions of commits that were undone; hidden for good, because a write of theirs may
            still be on its way.
    """

    next_revision: int = 1
    pending: tuple[Pending, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    undone: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """Another one after each change of what shows: a commit takes a number that no other had, shows, and ends."""
        commits = (f"{pending.number}{'+' if pending.shown else '-'}" for pending in self.pending)
        return ".".join([str(self.next_revision), *commits])

    def hidden(self, keep_seconds: float) -> Hidden:
        """What no search may show.

        Args:
            keep_seconds: Revisions replaced longer ago are gone, unless a commit is still to remove them.
        """
        staged = tuple((p.number, p.last) for p in self.pending if not p.shown and p.last >= p.number)
        recent = (each.revisions for each in self._recent(keep_seconds))
        return Hidden((*staged, *self.undone), frozenset(revision for revisions in recent for revision in revisions))

    def commit(self, number: int) -> Pending | None:
        """A commit under way by its number."""
        return next((pending for pending in self.pending if pending.number == number), None)

    def begun(self, pending: Pending, keep_seconds: float) -> "State":
        """With another commit under way, its revisions taken."""
        return msgspec.structs.replace(
            self,
            next_revision=max(pending.number, pending.last) + 1,
            pending=(*self.pending, pending),
            replaced=self._recent(keep_seconds),
        )

    def renewed(self, number: int, owner: Owner, lease: int) -> "State":
        """With a longer lease for a commit, if it is still its owner's."""
        return self._with(
            msgspec.structs.replace(pending, lease=lease)
            if (pending.number, pending.owner) == (number, owner)
            else pending
            for pending in self.pending
        )

    def switched(self, number: int, replaced: Iterable[int], lease: int) -> "State":
        """With a commit shown, and what it replaces hidden."""
        going = (Replaced(now(), tuple(sorted(replaced))),) if replaced else ()
        shown = self._with(
            msgspec.structs.replace(pending, shown=True, lease=lease) if pending.number == number else pending
            for pending in self.pending
        )
        return msgspec.structs.replace(shown, replaced=(*self.replaced, *going))

    def ended(self, number: int, keep_seconds: float) -> "State":
        """Without a commit that is complete."""
        left = self._with(pending for pending in self.pending if pending.number != number)
        # Searches may have found the replaced records until now.
        touched = tuple(msgspec.structs.replace(each, at=now()) for each in self._recent(keep_seconds))
        return msgspec.structs.replace(left, replaced=touched)

    def abandoned(self, number: int) -> "State":
        """Without a commit that was undone; its revisions stay hidden."""
        pending = self.commit(number)
        if pending is None:
            return self
        left = self._with(each for each in self.pending if each is not pending)
        if pending.last < pending.number:
            return left
        return msgspec.structs.replace(left, undone=_joined((*self.undone, (pending.number, pending.last))))

    def _with(self, pending: Iterable[Pending]) -> "State":
        return msgspec.structs.replace(self, pending=tuple(pending))

    def _recent(self, keep_seconds: float) -> tuple[Replaced, ...]:
        if any(pending.shown for pending in self.pending):
            return self.replaced
        oldest = now() - keep_seconds * 1000
        return tuple(each for each in self.replaced if each.at >= oldest)


class Staged(msgspec.Struct, frozen=True):
    """A document in a commit: its new revision and fingerprint, or revision 0 when it is removed."""

    document_id: str
    revision: int = 0
    fingerprint: str = ""


class Old(msgspec.Struct, frozen=True, array_like=True):
    """A node record that goes: its id and revision."""

    id: str
    revision: int


class Commit(msgspec.Struct, frozen=True):
    """What a commit changes; kept until it is complete.

    Args:
        account_id: The account.
        source_id: The source.
        number: Its number in the account's state.
        documents: What it writes or removes.
        old: The node records that go.
        removes: Whether it removes documents.
    """

    account_id: str
    source_id: str
    number: int
    documents: tuple[Staged, ...]
    old: tuple[Old, ...]
    removes: bool


def now() -> int:
    """Milliseconds since the epoch."""
    return int(time.time() * 1000)


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges with neighbours made one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)
