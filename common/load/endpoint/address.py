"""The address of an endpoint, and what its owner asks of those who call it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from common.messages.errors import UnusableValueError
from common.messages.names import quoted

PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 443}
EXAMPLE = "such as http://127.0.0.1:8000 or grpc://127.0.0.1:8001"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint is, and the authorization that its requests need; the latter is in no text of an address."""

    scheme: str  # one of ``PORTS``
    host: str
    port: int
    path: str = ""  # what comes before ``/v2`` in the paths of requests; empty for gRPC
    authorization: str = field(default="", repr=False)  # value of the header of that name; empty for none

    @property
    def is_grpc(self) -> bool:
        return self.scheme.startswith("grpc")

    @property
    def is_encrypted(self) -> bool:
        return self.scheme.endswith("s")

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def address_of(url: str, token_file: Path | None) -> Address:
    """Return the address of a URL, with the token in a file; a secret in the URL is refused, and not repeated."""
    try:
        parts = urlsplit(url)
        scheme, host, port, path = parts.scheme, parts.hostname, parts.port, parts.path.rstrip("/")
        (host or "").encode("idna")  # as a connection does
    except ValueError:
        raise UnusableValueError("endpoint", "the text is no address", EXAMPLE) from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        problem = "has more than host, port and path, perhaps a secret, which others on this host can read"
        raise UnusableValueError("endpoint", problem, "leave it out; <endpoint_token> is the file of a token")
    if scheme not in PORTS or not host or not url.isprintable() or " " in url or (path and scheme.startswith("grpc")):
        raise UnusableValueError("endpoint", f"{quoted(url)} is no address", EXAMPLE)
    authorization = _authorization(token_file) if token_file else ""
    return Address(scheme, host, port or PORTS[scheme], path, authorization)


def _authorization(file: Path) -> str:
    """Return the header of a token: a file of two words has the scheme before it, such as ``Basic``."""
    remedy = "give a file with a bearer token, or with a scheme and its credentials"
    try:
        words = file.read_text(encoding="ascii").split() if file.is_file() or not file.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UnusableValueError("endpoint_token", f"{file}: cannot be read ({reason})", remedy) from error
    if len(words) not in (1, 2) or not all(map(str.isprintable, words)):
        raise UnusableValueError("endpoint_token", f"{file}: holds no token", remedy)
    return " ".join(words) if len(words) > 1 else f"Bearer {words[0]}"
