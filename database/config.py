"""What can be set about the SQL database. Passwords are not settings: a URL with one comes from the environment."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from contracts.errors import ConfigError
from database.target import Target


class DatabaseConfig(BaseModel):
    """Settings of the SQL database."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(
        None,
        description="postgresql://user@host/name, for several machines, or sqlite:////folder/file.db; null is a SQLite "
        "file in the data folder, which needs nothing else and suits one machine. A URL with a password is a secret: "
        "STRATA_DATABASE_URL.",
    )
    pool_size: int = Field(
        5, ge=1, le=100, description="Connections a process keeps open at most; further transactions wait for one."
    )
    connect_timeout_ms: int = Field(
        2_000, ge=1, description="Longest wait for a new connection. Less: an outage shows sooner."
    )
    timeout_ms: int = Field(
        5_000, ge=1, description="Longest wait for one statement, for a lock or for a free connection."
    )
    migrate_at_start: bool = Field(
        False,
        description="Bring the tables of a PostgreSQL database up to date when a process starts, not only by strata db "
        "upgrade: less to do, but an old release beside it may no longer run. A SQLite file is always brought up.",
    )

    @field_validator("url")
    @classmethod
    def _without_password(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            target = Target.parse(url)
        except ConfigError as error:
            raise ValueError(f"{error.message.removesuffix('.')}; {error.remedy}") from None
        if target.has_password:
            raise ValueError("it holds a password; give it as the secret STRATA_DATABASE_URL")
        return url
