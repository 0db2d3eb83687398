"""JWTs: the good ones make a caller, no other does, and nobody learns why not."""

import logging
from pathlib import Path

import pytest

from contracts.errors import ConfigError, Unauthenticated
from deployments.identity.caller import Caller, Refused
from deployments.identity.config import JwtSettings
from deployments.identity.tokens import TokenVerifier, open_verifier
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, claims_of, hs256

issuer = Issuer()
SECRET = "s" * 32


def settings_of(**changes: object) -> JwtSettings:
    usual = {"issuer": ISSUER, "audience": [AUDIENCE], "algorithms": ["RS256", "ES256"]}
    return JwtSettings.model_validate({**usual, **changes})


@pytest.fixture(scope="module")
def forgeries() -> dict[str, str]:
    """Made when the tests run: collected long before, the tokens would all have expired."""
    return issuer.forgeries()


@pytest.fixture
async def verifier(tmp_path: Path) -> TokenVerifier:
    path = tmp_path / "jwks.json"
    path.write_text(issuer.jwks())
    return await open_verifier(settings_of(jwks_file=path), None)


@pytest.fixture
async def shared() -> TokenVerifier:
    return await open_verifier(settings_of(algorithms=["HS256"]), SECRET)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_token_gives_the_identity_of_its_claims(verifier: TokenVerifier, algorithm: str) -> None:
    """C20."""
    token = issuer.token(
        algorithm=algorithm,
        account="acme",
        role="agent",
        user_space="user:alice",
        agent_space="agent:bot",
        spaces=["team", "project:x"],
        sub="alice",
    )
    caller = await verifier.verify(token, "r1")
    assert caller.context.account_id == "acme"
    assert caller.context.role == "agent"
    assert caller.context.owner_spaces() == ("agent:bot", "project:x", "shared", "team", "user:alice")
    assert caller.context.request_id == "r1"


async def test_a_token_with_no_more_than_an_account_is_a_user_of_the_shared_space(verifier: TokenVerifier) -> None:
    context = (await verifier.verify(issuer.token(account="Größe 7"), "r")).context
    assert (context.account_id, context.role, context.owner_spaces()) == ("Größe 7", "user", ("shared",))


async def test_one_of_several_audiences_is_enough(verifier: TokenVerifier) -> None:
    assert await verifier.verify(issuer.token(account="acme", aud=["other", AUDIENCE]), "r")


async def test_a_secret_that_is_shared_signs_tokens_too(shared: TokenVerifier) -> None:
    assert (await shared.verify(hs256(claims_of(account="acme"), SECRET.encode()), "r")).context.account_id == "acme"


@pytest.mark.parametrize("kind", issuer.forgeries())
async def test_a_wrong_token_is_refused(
    verifier: TokenVerifier, forgeries: dict[str, str], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Always in the same words, and with no part of the token in the log."""
    token = forgeries[kind]
    with caplog.at_level(logging.DEBUG), pytest.raises(Refused) as caught:
        await verifier.verify(token, "r")
    assert str(caught.value) == str(Refused("another reason"))
    assert caught.value.reason.startswith("jwt_")
    assert token not in caplog.text


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("alg none", "jwt_algorithm"),
        ("HS256 with the public key as PEM", "jwt_algorithm"),
        ("other claims under a signature", "jwt_signature"),
        ("an unknown kid", "jwt_key"),
        ("expired", "jwt_expired"),
        ("no exp", "jwt_claims"),
        ("another issuer", "jwt_issuer"),
        ("another audience", "jwt_audience"),
        ("not valid yet", "jwt_too_early"),
        ("no account", "jwt_account"),
        ("an unknown role", "jwt_role"),
        ("a malformed space", "jwt_space"),
        ("huge", "jwt_size"),
        ("not ASCII", "jwt_malformed"),
    ],
)
async def test_the_metric_learns_why(
    verifier: TokenVerifier, forgeries: dict[str, str], kind: str, reason: str
) -> None:
    with pytest.raises(Refused) as caught:
        await verifier.verify(forgeries[kind], "r")
    assert caught.value.reason == reason


async def test_a_verifier_of_secrets_takes_no_key_pair_and_no_other_secret(shared: TokenVerifier) -> None:
    for token in (issuer.token(account="acme"), hs256(claims_of(account="acme"), b"t" * 32)):
        with pytest.raises(Unauthenticated):
            await shared.verify(token, "r")


async def test_the_leeway_covers_a_clock_that_is_a_little_off(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(issuer.jwks())
    strict, lenient = [await open_verifier(settings_of(jwks_file=path, leeway_s=leeway), None) for leeway in (0, 120)]
    token = issuer.token(account="acme", exp=claims_of()["exp"] - 660)
    assert await lenient.verify(token, "r")
    with pytest.raises(Refused):
        await strict.verify(token, "r")


async def test_claims_have_the_names_that_the_settings_give_them() -> None:
    settings = settings_of(
        algorithms=["HS256"],
        account_claim="https://acme.test/tenant",
        role_claim="r",
        user_space_claim="u",
        agent_space_claim="a",
        spaces_claim="s",
    )
    verifier = await open_verifier(settings, SECRET)
    named = {"https://acme.test/tenant": "acme", "r": "admin", "u": "user:a", "a": "agent:b", "s": ["c"]}
    context = (await verifier.verify(hs256(claims_of(**named), SECRET.encode()), "r")).context
    assert (context.account_id, context.role) == ("acme", "admin")
    assert (context.user_space, context.agent_space, context.spaces) == ("user:a", "agent:b", ("c",))


async def test_a_limit_per_key_counts_a_token_by_account_and_subject(verifier: TokenVerifier) -> None:
    async def caller(**claims: object) -> Caller:
        return await verifier.verify(issuer.token(**claims), "r")

    alice = (await caller(account="acme", sub="alice")).key
    assert (await caller(account="acme", sub="alice", jti="another")).key == alice
    others = [await caller(account="acme", sub="bob"), await caller(account="rival", sub="alice")]
    others += [await caller(account="acme"), await caller(account="acm", sub="e\0alice")]
    assert len({alice, *(other.key for other in others)}) == 5


@pytest.mark.parametrize("secret", [None, "", "s" * 31])
async def test_a_short_secret_is_refused_at_start(secret: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        await open_verifier(settings_of(algorithms=["HS256"]), secret)
    assert caught.value.field == "STRATA_JWT_SECRET"
    assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}']
)
async def test_a_jwks_file_without_a_usable_key_is_refused_at_start(tmp_path: Path, content: str | None) -> None:
    """A secret in it is no key for RS256 or ES256."""
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        await open_verifier(settings_of(jwks_file=path), None)
    assert caught.value.field == "identity.jwt.jwks_file"
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    "changes",
    [
        {"audience": []},
        {"algorithms": []},
        {"algorithms": ["none"], "jwks_file": "x"},
        {"algorithms": ["HS256", "RS256"], "jwks_file": "x"},
        {"algorithms": ["HS256"], "jwks_file": "x"},
        {},
        {"jwks_file": "x", "jwks_url": "https://x.test"},
        {"jwks_url": "http://issuer.test/jwks"},
        {"jwks_url": "file:///etc/passwd"},
        {"jwks_file": "x", "secret": SECRET},
    ],
)
def test_settings_that_do_not_hold_together_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="JwtSettings"):
        settings_of(**changes)
