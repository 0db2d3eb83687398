"""An authority that certifies nodes."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from deployments.wire.tls import Certificates

Extension = tuple[x509.ExtensionType, bool]


def ray_tls(certificates: Certificates) -> dict[str, str]:
    """The environment of a Ray cluster whose traffic goes under these."""
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(certificates.chain),
        "RAY_TLS_SERVER_KEY": str(certificates.key),
        "RAY_TLS_CA_CERT": str(certificates.authority),
    }


class Authority:
    """Signs certificates.

    Args:
        folder: Where its files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {folder.name}")])
        folder.mkdir()
        usage = x509.KeyUsage(*[name == "key_cert_sign" for name in _USAGES])
        root = self._sign(
            self._name,
            self._key.public_key(),
            [(x509.BasicConstraints(ca=True, path_length=None), True), (usage, True)],
        )
        (folder / "ca.pem").write_bytes(root.public_bytes(Encoding.PEM))

    def certify(self, *addresses: str) -> Certificates:
        """The files of a node with these IP addresses."""
        key, name = ec.generate_private_key(ec.SECP256R1()), "-".join(addresses)
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address)) for address in addresses])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
        signed = self._sign(subject, key.public_key(), [(names, False)])
        chain, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        chain.write_bytes(signed.public_bytes(Encoding.PEM))
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Certificates(chain, secret, self._folder / "ca.pem")

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extensions: Iterable[Extension]
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, SHA256())


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
