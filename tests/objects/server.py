"""A store that speaks as much of S3 as `bypath-objects` asks for, in memory, with faults on request.

    server.py DIRECTORY

Writes the port that it listens on to DIRECTORY/port. DIRECTORY/fault says how it fails, if there is such a file: `500`,
`403`, `slow` (it answers never), `cut` (bodies end early), `short` (bodies, and what their heads say, are a byte short),
`lost` (an upload is done and its answer lost, once). Signatures are not looked at, but there must be one. Any key of any
bucket: the buckets are there.

GET /_log tells of the requests so far, a line each (`copy` of a part that is copied here, and how many bytes came); PUT /_raw/KEY stores an object as somebody else's.
"""
import hashlib
import os
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree
from xml.sax.saxutils import escape

directory = sys.argv[1]
objects, uploads, log, lock = {}, {}, [], threading.Lock()


def fault():
    try:
        with open(os.path.join(directory, "fault")) as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def tag(data):
    return '"%s"' % hashlib.md5(data).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: two wait for each other's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, code, body=b"", headers=(), length=None):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, code, name):
        self.answer(code, ("<Error><Code>%s</Code><Message>as asked</Message></Error>" % name).encode())

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        _, bucket, key = (urllib.parse.unquote(path) + "/").split("/", 2)
        key = key[:-1]
        if bucket == "_log":
            return self.answer(200, "\n".join(log).encode())
        if bucket == "_raw":
            with lock:
                objects[key] = (body, tag(body), time.time(), self.metadata())
            return self.answer(200)
        copied = ["copy"] if "x-amz-copy-source-range" in self.headers else []
        log.append("%s %s %s" % (self.command, key, " ".join(sorted(query) + copied + ["bytes=%d" % len(body)] * bool(body))))
        how = fault()
        if how == "slow":
            time.sleep(3600)
        if how == "500":
            return self.error(500, "InternalError")
        if how == "403" or "Authorization" not in self.headers:
            return self.error(403, "AccessDenied")
        if self.command == "GET" and not key:
            return self.list(query)
        if self.command == "POST" and "delete" in query:
            return self.delete_many(body)
        if self.command == "POST" or "uploadId" in query:
            return self.multipart(key, query, body)
        getattr(self, "object_" + self.command.lower())(key, body, how)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_request

    # ---- objects ----

    def object_get(self, key, _, how=""):
        if key not in objects:
            return self.error(404, "NoSuchKey")
        data, etag, when, kept = objects[key]
        if self.headers.get("If-Match", etag) != etag:
            return self.error(412, "PreconditionFailed")
        headers = [("ETag", etag), ("Last-Modified", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(when)))] + kept
        wanted, code = self.headers.get("Range"), 200
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            first, last = int(first), min(int(last or len(data) - 1), len(data) - 1)
            headers.append(("Content-Range", "bytes %d-%d/%d" % (first, last, len(data))))
            data, code = data[first : last + 1], 206
        if self.command == "GET" and how == "short":
            data = data[:-1]
        if self.command == "GET" and how == "cut":
            self.answer(code, data[: len(data) // 2], headers, len(data))
            self.close_connection = True
            return None
        return self.answer(code, data, headers)

    object_head = object_get

    def metadata(self):
        return [(name, value) for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")]

    def is_as_expected(self, key):
        there = objects.get(key, (None, None))[1]
        wanted = self.headers.get("If-Match")
        if wanted is not None and there is None:
            self.error(404, "NoSuchKey")
        elif wanted is not None and wanted != there or self.headers.get("If-None-Match") == "*" and there:
            self.error(412, "PreconditionFailed")
        else:
            return True
        return False

    def object_put(self, key, body, how):
        source = self.headers.get("x-amz-copy-source")
        with lock:
            if not self.is_as_expected(key):
                return None
            if source:
                source = urllib.parse.unquote(source).lstrip("/").partition("/")[2]
                if source not in objects:
                    return self.error(404, "NoSuchKey")
                body = objects[source][0]
            kept = objects[source][3] if source else self.metadata()
            objects[key] = (body, tag(body), time.time(), kept)
        if how == "lost":
            os.remove(os.path.join(directory, "fault"))
            self.connection.close()
            return None
        text = "<CopyObjectResult><ETag>%s</ETag></CopyObjectResult>" % escape(tag(body)) if source else ""
        return self.answer(200, text.encode(), [("ETag", tag(body))])

    def object_delete(self, key, *_):
        with lock:
            objects.pop(key, None)
        self.answer(204)

    def delete_many(self, body):
        root, gone = ElementTree.fromstring(body), []
        for element in root.iter():
            if element.tag.endswith("Key"):
                objects.pop(element.text, None)
                gone.append("<Deleted><Key>%s</Key></Deleted>" % escape(element.text))
        self.answer(200, ("<DeleteResult>%s</DeleteResult>" % "".join(gone)).encode())

    def multipart(self, key, query, body):
        with lock:
            if "uploads" in query:
                name = str(len(uploads))
                uploads[name] = {0: self.metadata()}
                text = "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>" % name
                return self.answer(200, text.encode())
            parts = uploads[query["uploadId"]]
            source = self.headers.get("x-amz-copy-source")
            if self.command == "PUT" and source:
                source = urllib.parse.unquote(source).lstrip("/").partition("/")[2]
                if source not in objects:
                    return self.error(404, "NoSuchKey")
                if self.headers.get("x-amz-copy-source-if-match", objects[source][1]) != objects[source][1]:
                    return self.error(412, "PreconditionFailed")
                first, _, last = self.headers["x-amz-copy-source-range"].removeprefix("bytes=").partition("-")
                body = parts[int(query["partNumber"])] = objects[source][0][int(first) : int(last) + 1]
                return self.answer(200, ("<CopyPartResult><ETag>%s</ETag></CopyPartResult>" % escape(tag(body))).encode())
            if self.command == "PUT":
                parts[int(query["partNumber"])] = body
                return self.answer(200, b"", [("ETag", tag(body))])
            if self.command == "DELETE":
                del uploads[query["uploadId"]]
                return self.answer(204)
            if not self.is_as_expected(key):
                return None
            kept = parts.pop(0)
            data = b"".join(parts[number] for number in sorted(parts))
            etag = '"%s-%d"' % (tag(data)[1:-1], len(parts))
            objects[key] = (data, etag, time.time(), kept)
        text = "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>" % escape(etag)
        return self.answer(200, text.encode())

    # ---- listings ----

    def list(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after, most = query.get("continuation-token", ""), int(query.get("max-keys") or 1000)
        entries = {}
        with lock:
            for key, (data, etag, when, _) in objects.items():
                if key.startswith(prefix):
                    at = key.find(delimiter, len(prefix)) if delimiter else -1
                    name = key[: at + 1] if at >= 0 else key
                    entries[name] = None if at >= 0 else (len(data), etag, when)
        names = sorted(name for name in entries if name > after)
        page, parts = names[:most], []
        for name in page:
            if entries[name] is None:
                parts.append("<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>" % escape(name))
                continue
            size, etag, when = entries[name]
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(when))
            text = "<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag><LastModified>%s</LastModified></Contents>"
            parts.append(text % (escape(name), size, escape(etag), when))
        more = len(names) > most
        token = "<NextContinuationToken>%s</NextContinuationToken>" % escape(page[-1]) if more else ""
        text = "<ListBucketResult><IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>"
        self.answer(200, (text % (str(more).lower(), token, "".join(parts))).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(os.path.join(directory, "port.new"), "w") as file:
    file.write(str(server.server_address[1]))
os.rename(os.path.join(directory, "port.new"), os.path.join(directory, "port"))
server.serve_forever()
