"""A certificate for tests, signed by itself."""

import subprocess
from pathlib import Path


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
