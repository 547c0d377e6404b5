"""Authorities and certificates for tests, made by openssl."""

import os
import subprocess


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


class Authority:
    """Signs certificates. `folder`: where all files go."""

    def __init__(self, folder, name="authority"):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.key = self.path(name + ".key")
        self.cert = self.path(name + ".pem")
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", self.key, "-out", self.cert, "-days", "30", "-subj", "/CN=" + name,
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def path(self, name):
        return os.path.join(self.folder, name)

    def issue(self, name, alternatives="DNS:localhost,IP:127.0.0.1", days=30, rsa=False):
        """The paths of a certificate and its key. `alternatives`: "" for none. `days` below zero: it has ended."""
        key, request, cert, more = (self.path(name + end) for end in (".key", ".csr", ".pem", ".ext"))
        kind = ["rsa:2048"] if rsa else ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl("req", "-newkey", *kind, "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=" + name)
        with open(more, "w", encoding="ascii") as file:
            file.write("subjectAltName=%s\n" % alternatives if alternatives else "keyUsage=digitalSignature\n")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
            "-out", cert, "-days", str(days), "-extfile", more,
        )  # fmt: skip
        os.chmod(key, 0o600)
        return cert, key
