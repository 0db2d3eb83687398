"""Settings of identity: how API keys are looked up, and which JWTs are taken beside them."""

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

Algorithm = Literal["HS256", "RS256", "ES256"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class JwtSettings(BaseModel):
    """Which JWTs are taken; none while there is no issuer.

    HS256 goes by the secret STRATA_JWT_SECRET, the others by the public keys of a JWKS; never by both at once, so that
    no public key can pass for a secret.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str | None = Field(None, min_length=1, description="What iss must be; null takes no JWTs at all.")
    audience: tuple[str, ...] = Field((), description="What aud must hold one of; needed with an issuer.")
    algorithms: tuple[Algorithm, ...] = Field(
        (), description="HS256 alone, or RS256 and ES256; a token can't choose any other."
    )
    jwks_file: Path | None = Field(None, description="JWKS of the issuer; read again as jwks_max_age_s says.")
    jwks_url: str | None = Field(None, description="The same from a URL: https, or http on this machine.")
    jwks_max_age_s: float = Field(
        300,
        gt=0,
        description="Age beyond which the keys must be fetched anew; busy ingresses do so at half of it. A key taken "
        "out holds at most that much longer.",
    )
    jwks_refresh_s: float = Field(
        10, gt=0, description="Least time between two fetches, whatever unknown keys tokens name. Spares the issuer."
    )
    jwks_timeout_ms: int = Field(2000, ge=1, description="Whole fetch; a token with a new key waits for it.")
    leeway_s: float = Field(
        10, ge=0, le=300, description="How far the issuer's clock may be off; a token lives that much longer."
    )
    max_bytes: int = Field(8192, ge=512, description="Longer tokens are refused unread.")
    account_claim: str = Field("account", description="Claim that holds the account; needed in every token.")
    role_claim: str = Field("role", description="Claim that holds user, agent or admin; without it: user.")
    user_space_claim: str = Field("user_space", description="Claim that holds a whole name, for instance user:alice.")
    agent_space_claim: str = Field("agent_space", description="Claim that holds a whole name, for instance agent:bot.")
    spaces_claim: str = Field("spaces", description="Claim that holds a list of further spaces.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.issuer is None:
            return self
        if not self.audience or not self.algorithms:
            raise ValueError("a JWT issuer needs audience and algorithms")
        sources = (self.jwks_file is not None) + (self.jwks_url is not None)
        if "HS256" in self.algorithms and (len(set(self.algorithms)) > 1 or sources):
            raise ValueError("HS256 goes with no other algorithm and with no JWKS")
        if "HS256" not in self.algorithms and sources != 1:
            raise ValueError("RS256 and ES256 need one of jwks_file and jwks_url")
        if self.jwks_url:
            url = urlsplit(self.jwks_url)
            if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
                raise ValueError("jwks_url is not https: whoever sits in between could sign tokens")
        return self


class KeysSettings(BaseModel):
    """How API keys are looked up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache_s: float = Field(
        1.0,
        ge=0,
        le=60,
        description="How long an ingress remembers a key that it found in a PostgreSQL database, and goes on with it "
        "while that is down. A revocation shows that much later; 0 asks on each request, a millisecond more. A SQLite "
        "file is always asked.",
    )


class IdentitySettings(BaseModel):
    """Who is let in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: KeysSettings = KeysSettings()
    jwt: JwtSettings = JwtSettings()
