"""An issuer of JWTs with a key of each kind, and of tokens that no verifier should take."""

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.test", "strata"


class Issuer:
    """Signs tokens with RS256 (key ``r1``) or ES256 (key ``e1``)."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def jwks(self, **ids: str) -> str:
        """Its public keys; ``rsa`` and ``ec`` give them other ids."""
        keys = [
            {**RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True), "kid": ids.get("rsa", "r1"), "use": "sig"},
            {**ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True), "kid": ids.get("ec", "e1")},
        ]
        return json.dumps({"keys": keys})

    def token(self, *, algorithm: str = "RS256", kid: str | None = None, **claims: Any) -> str:
        """A good token, but for what the arguments change; a claim that is ``None`` is left out."""
        key, usual = (self.ec, "e1") if algorithm == "ES256" else (self.rsa, "r1")
        return jwt.encode(claims_of(**claims), key, algorithm, {"kid": kid or usual})

    def forgeries(self) -> dict[str, str]:
        """Tokens that all are wrong, by what is wrong with them."""
        good = self.token(account="acme")
        header, payload, signature = good.split(".")
        stranger, late, now = Issuer(), time.time() - 3600, time.time()
        public = self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        root = claims_of(account="acme", role="admin")
        return {
            "no token at all": "nonsense",
            "two parts": f"{header}.{payload}",
            "four parts": f"{good}.{signature}",
            "empty parts": "..",
            "no signature": f"{header}.{payload}.",
            "alg none": raw({"alg": "none"}, root, b""),
            "alg None": raw({"alg": "None", "kid": "r1"}, root, b""),
            "alg null": raw({"alg": None, "kid": "r1"}, root, b""),
            "alg is a list": raw({"alg": ["RS256"], "kid": "r1"}, root, b"x"),
            "no alg": raw({"kid": "r1"}, root, b"x"),
            "an algorithm that is not allowed": jwt.encode(root, self.rsa, "RS512", {"kid": "r1"}),
            "HS256 with the public key as PEM": hs256(root, public),
            "HS256 with the public key of the JWKS": hs256(root, self.jwks().encode()),
            "HS256 with an empty secret": hs256(root, b""),
            "the key of somebody else": stranger.token(account="acme"),
            "a key that the token brings along": jwt.encode(
                root, stranger.rsa, "RS256", {"kid": "r1", "jwk": json.loads(stranger.jwks())["keys"][0]}
            ),
            "the key of another algorithm": jwt.encode(root, self.ec, "ES256", {"kid": "r1"}),
            "an unknown kid": self.token(account="acme", kid="r9"),
            "a kid that is a path": self.token(account="acme", kid="../../etc/passwd"),
            "another account as kid": self.token(account="acme", kid="rival"),
            "a kid that is no string": raw({"alg": "RS256", "kid": {"r1": 1}}, root, b"x"),
            "other claims under a signature": ".".join([header, segment(root), signature]),
            "another header over a signature": ".".join(
                [segment({"alg": "RS256", "kid": "r1", "x": 1}), payload, signature]
            ),
            "a critical extension": jwt.encode(root, self.rsa, "RS256", {"kid": "r1", "crit": ["x"], "x": 1}),
            "expired": self.token(account="acme", exp=late),
            "no exp": self.token(account="acme", exp=None),
            "exp is no number": self.token(account="acme", exp="soon"),
            "exp is infinite": self.token(account="acme", exp=float("inf")),
            "not valid yet": self.token(account="acme", nbf=now + 3600),
            "issued tomorrow": self.token(account="acme", iat=now + 86400),
            "another issuer": self.token(account="acme", iss="https://other.test"),
            "an issuer that begins alike": self.token(account="acme", iss=ISSUER + ".evil.test"),
            "no issuer": self.token(account="acme", iss=None),
            "another audience": self.token(account="acme", aud="other"),
            "no audience": self.token(account="acme", aud=None),
            "an audience that is no string": self.token(account="acme", aud={"strata": True}),
            "no account": self.token(),
            "a blank account": self.token(account=" "),
            "an account that is no string": self.token(account=["acme"]),
            "an account with a line break": self.token(account="acme\nrival"),
            "an account with space around": self.token(account=" acme"),
            "an endless account": self.token(account="a" * 300),
            "an unknown role": self.token(account="acme", role="root"),
            "a role that is no string": self.token(account="acme", role=["admin"]),
            "a role that is null": jwt.encode({**root, "role": None}, self.rsa, "RS256", {"kid": "r1"}),
            "a malformed space": self.token(account="acme", user_space="user:alice/../bob"),
            "a space in capitals": self.token(account="acme", user_space="User:Alice"),
            "a space that is null": jwt.encode({**root, "user_space": None}, self.rsa, "RS256", {"kid": "r1"}),
            "spaces that are a string": self.token(account="acme", spaces="team"),
            "a malformed further space": self.token(account="acme", spaces=["team", "*"]),
            "a further space that is empty": self.token(account="acme", spaces=[""]),
            "a subject that is no string": self.token(account="acme", sub=7),
            "a payload that is no object": self.signed(b"[1]"),
            "a payload that is no JSON": self.signed(b"{"),
            "a payload that is no text": self.signed(b"\xff\xfe"),
            "a header without end": ".".join([b64(b"[" * 3000), payload, signature]),
            "huge": self.token(account="acme", padding="x" * 20_000),
            "not ASCII": f"{header}.{payload}é.{signature}",
            "not ASCII from the start": "ключ.ключ.ключ".encode().decode("latin-1"),
            "standard base64": f"{header}.{payload}.{signature.replace('-', '+').replace('_', '/')}+/",
            "white space inside": f"{header}. {payload}.{signature}",
        }

    def signed(self, payload: bytes) -> str:
        """A payload that is no claims, well signed."""
        return jwt.PyJWS().encode(payload, self.rsa, "RS256", {"kid": "r1"})


def claims_of(**changes: Any) -> dict[str, Any]:
    """Claims of a good token but for the account; a change to ``None`` leaves one out."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600, **changes}
    return {name: value for name, value in claims.items() if value is not None}


def hs256(claims: Mapping[str, Any], secret: bytes) -> str:
    """Signed with any secret; the library refuses some."""
    signing = f"{segment({'alg': 'HS256', 'kid': 'r1'})}.{segment(claims)}"
    mac = HMAC(secret, SHA256())
    mac.update(signing.encode())
    return f"{signing}.{b64(mac.finalize())}"


def raw(header: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes) -> str:
    """Put together without any library's checks."""
    return f"{segment(header)}.{segment(claims)}.{b64(signature)}"


def segment(part: Mapping[str, Any]) -> str:
    return b64(json.dumps(part).encode())


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
