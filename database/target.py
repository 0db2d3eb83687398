"""Which database a URL means, and how it is named without its password."""

import re
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs

import msgspec

from contracts.errors import ConfigError

Dialect = Literal["sqlite", "postgresql"]

_HOST = r"(?:\[[^\]@/]+\]|[^:@/?#,\[\]]*)(?::\d+)?"
# Strict where a password may stand: one with an unescaped character could else be taken for a host, and shown.
_POSTGRESQL = re.compile(
    rf"postgres(?:ql)?://(?:(?P<user>[^/?#]*)@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<name>/[^/@?#]*)?(?:\?(?P<query>[^@#]*))?"
)
_SQLITE = re.compile(r"sqlite://(?P<path>//?[^?#]*[^/?#])")


class Target(msgspec.Struct, frozen=True):
    """A database; its ``str`` and ``repr`` show no user and no password.

    Args:
        dialect: What speaks there.
        place: The SQLite file, or hosts and name of the PostgreSQL database.
        url: As libpq reads it, with the password if there is one; empty for SQLite.
        has_password: Whether the URL alone lets somebody in.
    """

    dialect: Dialect
    place: str
    url: str = ""
    has_password: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``sqlite:////absolute/file`` or ``postgresql://user:password@host:port/name?option=value``.

        The latter is libpq's form, with several hosts and options such as ``sslmode`` too.

        Raises:
            ConfigError: It is neither; the message holds nothing of it.
        """
        if found := _SQLITE.fullmatch(url):
            return cls.file(Path(found["path"][1:] if found["path"].startswith("//") else found["path"]))
        if found := _POSTGRESQL.fullmatch(url):
            options = parse_qs(found["query"] or "")
            hosts = found["hosts"] or ",".join(options.get("host", ["localhost"]))
            has_password = ":" in (found["user"] or "") or "password" in options
            return cls("postgresql", hosts + (found["name"] or ""), url, has_password)
        raise ConfigError(
            "The database URL is of no known form.",
            field="database.url",
            remedy="Write it like postgresql://user@host/name or sqlite:////folder/file.db, special characters as %40.",
        )

    @classmethod
    def file(cls, path: Path) -> Self:
        """A SQLite file."""
        return cls("sqlite", str(path.absolute()))

    @property
    def absent(self) -> bool:
        """Whether it is a SQLite file that nobody has made yet."""
        return self.dialect == "sqlite" and not Path(self.place).exists()

    def __str__(self) -> str:
        return self.place

    def __repr__(self) -> str:
        return f"Target({self.dialect}, {self.place})"
