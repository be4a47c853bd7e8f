"""A certificate for tests, signed by itself."""

import hashlib
import ssl
import subprocess
from pathlib import Path

from acp_bridge.remote.connect.logins import Login, keep, read_address


def certificate(folder: Path, *names: str) -> tuple[str, str]:
    """Make a certificate for these names (`DNS:...`, `IP:...`) and its key; returns both files."""
    files = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=test", "-out", files[0], "-keyout", files[1]),
            *(("-addext", f"subjectAltName={','.join(names)}") if names else ()),
        ],
        check=True,
        capture_output=True,
    )
    return files


def log_in(home: Path, address: str, token: str, file: str) -> None:
    """Keep a login for a server in a data folder, with the certificate in this file."""
    der = ssl.PEM_cert_to_DER_cert(Path(file).read_text())
    keep(home, read_address(address), Login(token, hashlib.sha256(der).hexdigest()))
