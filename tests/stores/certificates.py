"""An authority and certificates signed by it, made with the `openssl` command for one test run."""

import shutil
import ssl
import subprocess
from pathlib import Path

from martlet.stores.etcd_options import EtcdTls
from tests.stores.etcd_process import ServerTls


class Authority:
    """Makes files in one directory."""

    def __init__(self, directory: Path) -> None:
        assert shutil.which("openssl"), "these tests need the openssl command"
        self._directory = directory
        self.ca_file = str(directory / "ca.pem")
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=test authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"),
        )

    def server(self) -> ServerTls:
        """For an etcd on loopback that demands certificates from its clients."""
        # The gateway inside etcd is a client of etcd and shows the server's certificate.
        self._sign("server", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        self._sign("admin", "extendedKeyUsage=clientAuth\n")
        context = ssl.create_default_context(cafile=self.ca_file)
        context.load_cert_chain(self._path("admin.pem"), self._path("admin.key"))
        flags = ("--cert-file", self._path("server.pem"), "--key-file", self._path("server.key"))
        return ServerTls((*flags, "--client-cert-auth", "--trusted-ca-file", self.ca_file), context)

    def client(self) -> EtcdTls:
        self._sign("client", "extendedKeyUsage=clientAuth\n")
        return EtcdTls(self.ca_file, self._path("client.pem"), self._path("client.key"))

    def pair(self, name: str, extensions: str = "", *, days: int = 2) -> tuple[str, str]:
        """Files with a certificate for this name, for servers and clients on loopback alike, and with its key."""
        uses = "extendedKeyUsage=serverAuth,clientAuth\n"
        self._sign(name, f"subjectAltName=IP:127.0.0.1,DNS:localhost{extensions}\n{uses}", days)
        Path(self._path(f"{name}.key")).chmod(0o600)
        return self._path(f"{name}.pem"), self._path(f"{name}.key")

    def _sign(self, name: str, extensions: str, days: int = 2) -> None:
        Path(self._path(f"{name}.ext")).write_text(extensions)
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        )

    def _path(self, name: str) -> str:
        return str(self._directory / name)

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self._directory, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
