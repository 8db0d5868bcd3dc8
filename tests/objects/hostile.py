"""A store that answers with intent: hostile.py BYPATH.

Redirects are not followed (no other host gets a token or contents), a list without an end is an error, and an answer longer
than what was asked for is one too, after which the session still reads.
"""
import http.server
import os
import subprocess
import sys
import threading
from urllib.parse import parse_qs, urlparse

BYPATH = sys.argv[1]
HEADERS = {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
stolen = []


def listing(keys, more=""):
    """The answer to a list of objects of five bytes."""
    entry = "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag><Size>5</Size></Contents>"
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else "<IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult><Name>b</Name>{more}{''.join(entry.format(key) for key in keys)}</ListBucketResult>".encode()


class Store(http.server.BaseHTTPRequestHandler):
    """One that answers as the server's `mode` says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        headers = {"Content-Length": str(len(body)), **headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("content-length"):
            self.rfile.read(int(self.headers["content-length"]))
        mode, query = self.server.mode, parse_qs(urlparse(self.path).query)
        if mode == "thief":
            stolen.append(dict(self.headers))
            return self.answer(200, listing(["stolen"]))
        if mode == "redirect":
            return self.answer(307, Location=f"http://127.0.0.1:{thief.server_port}{self.path}")
        if "list-type" in query:
            return self.answer(200, listing(["good", "liar"], "again" if mode == "circle" else ""))
        if self.command == "GET" and "liar" in self.path:
            self.close_connection = True
            return self.answer(206, b"short", **HEADERS, **{"Content-Length": "900000000000"})
        self.answer(206 if self.command == "GET" else 200, b"fives", **HEADERS)

    do_HEAD = do_PUT = do_GET


def serve(mode):
    """Starts one."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.mode, server.daemon_threads = mode, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def session(mode, command):
    """What a session with such a store says."""
    mount = f"s3:http://127.0.0.1:{serve(mode).server_port}/b:/s3,timeout=3"
    environment = dict(os.environ, AWS_SESSION_TOKEN="token")
    run = [BYPATH, "run", "--no-fuse", "--mount", mount, "--", "sh", "-c", command]
    return subprocess.run(run, capture_output=True, text=True, env=environment, timeout=120)


thief = serve("thief")
ended = session("redirect", "ls /s3")
assert "stolen" not in ended.stdout and not stolen, (ended, stolen)
ended = session("circle", "ls /s3; echo $?")
assert ended.returncode != 0 or not ended.stdout.endswith("0\n"), ended
assert "no end" in ended.stderr, ended
ended = session("liar", "cat /s3/liar >/dev/null; cat /s3/good")
assert ended.stdout == "fives", ended
