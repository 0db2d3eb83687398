"""Settings of the limits."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Limit(BaseModel):
    """How much one account or one key may ask; null is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate_per_s: float | None = Field(None, gt=0, description="Requests a second in the long run; beyond, 429.")
    burst: int | None = Field(
        None,
        ge=1,
        description="Requests on top after a quiet time; null: what rate_per_s gives in a second, at least 1.",
    )
    concurrent: int | None = Field(None, ge=1, description="Requests at once; beyond, 429. Keeps slow ones in check.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.burst and not self.rate_per_s:
            raise ValueError("burst needs rate_per_s")
        return self

    @property
    def capacity(self) -> float:
        """Tokens that gather at most."""
        return float(self.burst or max(1.0, self.rate_per_s or 0.0))

    @property
    def unlimited(self) -> bool:
        """Whether it limits nothing."""
        return self.rate_per_s is None and self.concurrent is None


class AdmissionConfig(BaseModel):
    """How many searches an ingress takes at once: as many as keep to a target of latency.

    The rule is in :mod:`deployments.limits.admission`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_ms: float | None = Field(
        150.0,
        gt=0,
        description="What a search may take inside the ingress. Lower: quicker under load, and more are refused; but "
        "more than a quiet one takes, or next to nothing is let in. 95% of searches stay within about twice of it, so "
        "it is half the budget of C40. null lets in as many as server.max_concurrent.",
    )
    least: int = Field(
        4, ge=1, description="Searches at once that are let in however slow they are. More: a longer wait at worst."
    )
    initial: int = Field(
        8, ge=1, description="The same before anything is known. More: a burst upon a cold service hurts more."
    )
    increase: float = Field(
        0.5,
        gt=0,
        description="Places more a round of searches within the target. More: room is found sooner, and overshot more.",
    )
    decrease: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Part of the excess over the target that a round takes back. Less: slower to react, and smoother.",
    )
    most_decrease: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Part of the places that a round takes at most. Less: one slow search costs less.",
    )
    max_retry_after_s: float = Field(
        10.0, ge=1, description="Longest Retry-After. Less: those refused are back sooner, and find less room."
    )


class LimitsSettings(BaseModel):
    """Limits of all accounts and keys, and of each ingress."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    account: Limit = Field(Limit(), description="Of each account, over all its keys.")
    key: Limit = Field(Limit(), description="Of each API key; a JWT counts by its account and sub.")
    accounts: dict[str, Limit] = Field({}, description="Of single accounts by name, in place of the one for each.")
    admission: AdmissionConfig = AdmissionConfig()
    lease_s: float = Field(
        1.0,
        gt=0,
        description="How long an ingress goes by its share. Longer: fewer calls, and a dead one's slots are "
        "missed longer (three times this).",
    )
    timeout_ms: int = Field(
        100,
        ge=1,
        description="How long a request waits for a share; then its ingress goes by an equal part of the limit.",
    )

    def of(self, name: str) -> Limit:
        """The limit of ``account:<account id>`` or ``key:<key>``."""
        kind, _, what = name.partition(":")
        return self.key if kind == "key" else self.accounts.get(what, self.account)

    @property
    def active(self) -> bool:
        """Whether an account or a key is limited."""
        return not all(limit.unlimited for limit in (self.account, self.key, *self.accounts.values()))
