"""TLS on the wire, by the certificates that Ray's own traffic goes under."""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """PEM files of one node. Both ends show a certificate, and a replica's must name the address that it listens at.

    Args:
        chain: The node's certificate, with those between it and the authority's.
        key: Its private key.
        authority: Certificates of whoever may sign.
    """

    chain: Path
    key: Path
    authority: Path

    def server(self) -> ssl.SSLContext:
        """For a replica.

        Raises:
            OSError: A file can't be read, or holds something else (``ssl.SSLError``).
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.verify_mode = ssl.CERT_REQUIRED
        return self._with_own(context)

    def client(self) -> ssl.SSLContext:
        """For a caller.

        Raises:
            OSError: A file can't be read, or holds something else (``ssl.SSLError``).
        """
        return self._with_own(ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.authority)))

    def _with_own(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.chain, self.key)
        return context
