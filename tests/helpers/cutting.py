"""A proxy before a server, which cuts the connection at a COMMIT."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

COMMIT = b"COMMIT\0"


class CuttingProxy:
    """Passes on what clients and a server say, until it is told to cut.

    `cut` is "before" a COMMIT reaches the server, "after" it has and before the answer, or "".
    While it is `down`, nobody gets through.
    """

    def __init__(self, port: int) -> None:
        self.cut, self.down, self.cuts = "", False, 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            if self.down:
                return
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                back = threading.Thread(
                    target=self._pass_on, args=(server, client, False), daemon=True
                )
                back.start()
                self._pass_on(client, server, True)
                back.join()

    def _pass_on(self, one: socket.socket, other: socket.socket, from_client: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if from_client and self.cut and COMMIT in data:
                    how, self.cut = self.cut, ""
                    self.cuts += 1
                    if how == "after":
                        _shut(one)  # so that no answer gets back
                        other.sendall(data)
                        with suppress(OSError):
                            other.recv(1)
                    break
                other.sendall(data)
        _shut(one)
        _shut(other)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
