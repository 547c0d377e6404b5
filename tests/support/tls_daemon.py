"""A daemon whose TCP listeners speak TLS."""

import http.client
import os
import ssl

from leafctl import Daemon, RawConnection
from metrics import Metrics


class TlsDaemon(Daemon):
    """`identity`: certificate and key. `authority`: certificates.Authority, of which the certificate is."""

    def __init__(self, box, args, identity=None, authority=None, **more):
        self._authority = authority
        if identity:
            args = ["--set", "server.tls_cert=" + identity[0], "--set", "server.tls_key=" + identity[1], *args]
        super().__init__(box, args, **more)
        box.daemons.append(self)
        self.wait_listening()

    def wait_listening(self):
        self.port = int(self.wait_log(r"listening on https://127\.0\.0\.1:(\d+)").group(1))

    def redis_port(self):
        return int(self.wait_log(r"listening on rediss://127\.0\.0\.1:(\d+)").group(1))

    @property
    def url(self):
        return "https://127.0.0.1:%d" % self.port

    def _open_connection(self, timeout):
        context = ssl.create_default_context(cafile=self._authority.cert)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)

    def local(self, path):
        """A GET over the Unix socket, which asks for no certificate and counts no handshake."""
        with RawConnection(os.path.join(self.box.state, "leafctl.sock")) as connection:
            return connection.get(path)

    def metric(self, name, **labels):
        return Metrics(self.local("/metrics").body).get(name, **labels)

    def handshakes(self, result):
        return self.metric("leaf_tls_handshakes_total", result=result)
