"""What the environment says: the only place that reads it.

=============================  =====================================================================================
variable                       meaning
=============================  =====================================================================================
STRATA_CONFIG                  The settings file; without it and without ``--config`` every setting has its default.
STRATA_HOME                    The data folder, before ``data_dir`` of the file.
STRATA_URL                     Where clients find the service; without it ``server.host`` and ``server.port``.
STRATA_API_KEY                 The key that clients send.
STRATA_JWT_SECRET              Secret: what JWTs with HS256 are signed with, at least 32 bytes.
STRATA_ELASTIC_HOSTS           URLs of Elasticsearch nodes, commas between, before those of the settings.
STRATA_ELASTIC_API_KEY         Secret: an API key for Elasticsearch.
STRATA_ELASTIC_PASSWORD        Secret: the password of ``index.elastic.connection.username``.
STRATA_DATABASE_URL            Secret: the SQL database with its password, before ``database.url`` of the settings.
STRATA_GATEWAY_UPSTREAM_KEY    Secret: what the memory gateway sends an upstream service as a bearer token.
STRATA_GATEWAY_LLM_KEY         Secret: what it sends the language model's endpoint as a bearer token.
STRATA_…_FILE                  These six from files: ``STRATA_JWT_SECRET_FILE`` and so on name them.
ES_JAVA_HOME                   The JDK that ``strata es`` looks at first; after it JAVA_HOME.
JAVA_HOME                      The same for whatever runs on Java.
XDG_CACHE_HOME                 Where the user's caches lie, the server of ``strata es`` in them; else ``~/.cache``.
KB_EMBEDDING_MODEL             Before ``knowledge_base.embedder.name``.
KB_VECTOR_DIMENSIONS           Before ``knowledge_base.embedder.dimensions``: what its model must have.
KB_EMBEDDING_DEVICE            Before ``knowledge_base.embedder.device``.
RETRIEVAL_TOP_K                Before ``knowledge_base.top_k``.
RETRIEVAL_RERANK_WEIGHTS_JSON  Before ``knowledge_base.weights``, as a JSON object.
RAY_USE_TLS                    1 or true: Ray's traffic goes by TLS, and so does the wire, with the same certificates.
RAY_TLS_SERVER_CERT            The node's certificate, a PEM file.
RAY_TLS_SERVER_KEY             Its private key.
RAY_TLS_CA_CERT                Whoever may sign.
=============================  =====================================================================================

Secrets are read where they are used and travel nowhere. So every machine with an ingress needs that of JWTs, and every
one with a replica or a writer those of Elasticsearch and of the database, in its own environment: on Kubernetes a
mounted secret, elsewhere set before ``ray start``. A service that ``strata up`` starts hands its environment down to
its replicas.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from contracts.errors import ConfigError
from deployments.stage_settings import Strict
from deployments.wire.tls import Certificates

# Variables that are not called STRATA_ and the field's name.
_VARIABLES = {
    "es_java_home": "ES_JAVA_HOME",
    "java_home": "JAVA_HOME",
    "cache_home": "XDG_CACHE_HOME",
    "kb_embedding_model": "KB_EMBEDDING_MODEL",
    "kb_vector_dimensions": "KB_VECTOR_DIMENSIONS",
    "kb_embedding_device": "KB_EMBEDDING_DEVICE",
    "retrieval_top_k": "RETRIEVAL_TOP_K",
    "retrieval_rerank_weights_json": "RETRIEVAL_RERANK_WEIGHTS_JSON",
    "ray_use_tls": "RAY_USE_TLS",
    "ray_tls_server_cert": "RAY_TLS_SERVER_CERT",
    "ray_tls_server_key": "RAY_TLS_SERVER_KEY",
    "ray_tls_ca_cert": "RAY_TLS_CA_CERT",
}

Secret = Literal[
    "jwt_secret", "elastic_api_key", "elastic_password", "database_url", "gateway_upstream_key", "gateway_llm_key"
]


class Environment(Strict):
    """What the environment says; see the table above."""

    config: Path | None = None
    home: Path | None = None
    url: str | None = None
    api_key: str | None = Field(None, repr=False)
    es_java_home: Path | None = None
    java_home: Path | None = None
    cache_home: Path | None = None
    jwt_secret: str | None = Field(None, repr=False)
    jwt_secret_file: Path | None = None
    elastic_hosts: str | None = None
    elastic_api_key: str | None = Field(None, repr=False)
    elastic_api_key_file: Path | None = None
    elastic_password: str | None = Field(None, repr=False)
    elastic_password_file: Path | None = None
    database_url: str | None = Field(None, repr=False)
    database_url_file: Path | None = None
    gateway_upstream_key: str | None = Field(None, repr=False)
    gateway_upstream_key_file: Path | None = None
    gateway_llm_key: str | None = Field(None, repr=False)
    gateway_llm_key_file: Path | None = None
    kb_embedding_model: str | None = None
    kb_vector_dimensions: str | None = None
    kb_embedding_device: str | None = None
    retrieval_top_k: str | None = None
    retrieval_rerank_weights_json: str | None = None
    ray_use_tls: str | None = None
    ray_tls_server_cert: Path | None = None
    ray_tls_server_key: Path | None = None
    ray_tls_ca_cert: Path | None = None

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """Read the variables; empty ones count as not set."""
        found = {name: variables.get(_VARIABLES.get(name, f"STRATA_{name.upper()}")) for name in cls.model_fields}
        return cls.model_validate({name: value for name, value in found.items() if value})

    def secret(self, name: Secret) -> str | None:
        """A secret: the variable's value, or what the file holds that the variable with ``_FILE`` names.

        Raises:
            ConfigError: The file can't be read or is empty.
        """
        value: str | None = getattr(self, name)
        path: Path | None = getattr(self, f"{name}_file")
        if value or path is None:
            return value
        variable = f"STRATA_{name.upper()}_FILE"
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(
                f"{variable} names {path}, which can't be read: {why}.", field=variable, remedy="Correct the path."
            ) from None
        if not text:
            raise ConfigError(f"{variable} names {path}, which is empty.", field=variable, remedy="Fill the file.")
        return text

    def wire_tls(self, end: Literal["server", "client"]) -> ssl.SSLContext | None:
        """What an end of the wire speaks TLS by, where Ray does.

        Raises:
            ConfigError: A certificate is not named or can't be read.
        """
        if (self.ray_use_tls or "").lower() not in ("1", "true"):
            return None
        chain, key, authority = self.ray_tls_server_cert, self.ray_tls_server_key, self.ray_tls_ca_cert
        remedy = (
            "Set RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT to PEM files, as Ray's documentation says."
        )
        if not (chain and key and authority):
            raise ConfigError("RAY_USE_TLS is set, and not all certificates are.", field="RAY_USE_TLS", remedy=remedy)
        certificates = Certificates(chain, key, authority)
        try:
            return certificates.server() if end == "server" else certificates.client()
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ConfigError(f"Ray's certificates can't be read: {why}.", field="RAY_USE_TLS", remedy=remedy) from None

    @property
    def java_homes(self) -> list[Path]:
        """JDKs to look at first, in order."""
        return [home for home in (self.es_java_home, self.java_home) if home]

    @property
    def cache_dir(self) -> Path:
        """What can be fetched again, shared by all data folders of the user."""
        return (self.cache_home or Path.home() / ".cache") / "strata"
