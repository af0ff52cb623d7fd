# SPDX-License-Identifier: Apache-2.0
"""
HTTP servers of a test's own, on loopback, each request on a thread of its own.

  serve      starts a server, which stop() ends
  Served     a server whose class has answer(handler); it runs within `with`
"""
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Gives each request to the `answer` of its server, and logs nothing."""
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        self.server.answer(self)

    do_HEAD = do_GET

    def log_message(self, *a):
        pass


class Server(http.server.ThreadingHTTPServer):
    # of five, which is the default, the kernel drops some that come at once, to ask again after a second
    request_queue_size = 128


def serve(answer=None, handler=Handler):
    """Handler gives each request to answer(handler)."""
    server = Server(('127.0.0.1', 0), handler)
    server.daemon_threads, server.answer = True, answer
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def stop(server):
    server.shutdown()
    server.server_close()


class Served:
    handler = Handler

    def __enter__(self):
        self.server = serve(self.answer, self.handler)
        return self

    def __exit__(self, *a):
        stop(self.server)

    def url(self, name=''):
        return f'http://127.0.0.1:{self.server.server_address[1]}/{name}'
