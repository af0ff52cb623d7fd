# SPDX-License-Identifier: Apache-2.0
"""
HTTP servers of a test's own, on loopback, each request on a thread of its own.

  serve      starts a server, which stop() ends
  serving    within `with`, a server of socketserver accepts connections
  Served     a server whose class has answer(handler); it runs within `with`
"""
import contextlib
import http.server
import socket
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Gives each request to the `answer` of its server, and logs nothing."""
    protocol_version = 'HTTP/1.1'
    # else the body waits until the client has acknowledged the headers, which takes 40 ms
    disable_nagle_algorithm = True

    def do_GET(self):
        self.server.answer(self)

    do_HEAD = do_GET

    def log_message(self, *a):
        pass


class Server(http.server.ThreadingHTTPServer):
    # of five, which is the default, the kernel drops some that come at once, to ask again after a second
    request_queue_size = 128


def start(server):
    """Accepts connections on a thread, until stop(): serve_forever() looks twice a second only whether it is to end."""
    def accept():
        while not server.over:
            # a client may go before it is accepted
            with contextlib.suppress(OSError):
                server.process_request(*server.get_request())

    server.over = False
    server.daemon_threads = True
    server.thread = threading.Thread(target=accept, daemon=True)
    server.thread.start()
    return server


def stop(server):
    server.over = True
    server.socket.shutdown(socket.SHUT_RDWR)
    server.thread.join()
    server.server_close()


@contextlib.contextmanager
def serving(server):
    start(server)
    try:
        yield server
    finally:
        stop(server)


def serve(answer=None, handler=Handler):
    """Handler gives each request to answer(handler)."""
    server = Server(('127.0.0.1', 0), handler)
    server.answer = answer
    return start(server)


class Served:
    handler = Handler

    def __enter__(self):
        self.server = serve(self.answer, self.handler)
        return self

    def __exit__(self, *a):
        stop(self.server)

    def url(self, name=''):
        return f'http://127.0.0.1:{self.server.server_address[1]}/{name}'
