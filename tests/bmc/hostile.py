"""A BMC that does its worst: `hostile.py CERT KEY MODE PASSWORD`; prints its port."""
import base64, json, socket, ssl, sys, threading, time, urllib.parse

mode = sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
SECRET = sys.argv[4]


def answer(body, status="200 OK", more=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def path_of(head):
    return head.split()[1].decode()


def serve(raw):
    try:
        connection = context.wrap_socket(raw, server_side=True)
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
            if mode == "drip":
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b" " * 100000:
                    connection.send(bytes([byte]))
                    time.sleep(0.2)
            elif mode == "body":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
                while True:
                    connection.sendall(b" " * 65536)
            elif mode == "headers":
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    connection.sendall(b"X-A: " + b"a" * 8000 + b"\r\n")
            elif mode == "pages":
                number = int(path_of(head).rpartition("=")[2] or 0) if "=" in path_of(head) else 0
                connection.sendall(answer({"Members": [{"@odata.id": f"/redfish/v1/Systems/{number}"}],
                                           "Members@odata.nextLink": f"/redfish/v1/Systems?page={number + 1}"}
                                          if path_of(head).startswith("/redfish/v1/Systems?") or path_of(head) == "/redfish/v1/Systems"
                                          else {"Id": "x", "Systems": {"@odata.id": "/redfish/v1/Systems"}}))
            elif mode == "echo":
                text = " ".join([SECRET, urllib.parse.quote(SECRET), urllib.parse.quote(SECRET, safe=""), urllib.parse.quote_plus(SECRET),
                                 base64.b64encode(SECRET.encode()).decode(), base64.b64encode(b"admin:" + SECRET.encode()).decode(),
                                 json.dumps(SECRET)])
                connection.sendall(answer({"error": {"message": text, "@Message.ExtendedInfo": [{"Message": text}]}}, "500 Oops"))
            elif mode == "escape":
                connection.sendall(answer({"error": {"message": "\x1b[2J\x1b]0;owned\x07\r\n2026 done"}}, "500 Oops"))
            elif mode == "empty":
                return
            elif mode == "deep":
                connection.sendall(answer(b"[" * 200000))
            elif mode == "redirects":
                connection.sendall(answer({}, "302 Found", f"Location: {path_of(head)}x\r\n"))
    except OSError:
        pass
    finally:
        raw.close()


while True:
    client, _ = listener.accept()
    threading.Thread(target=serve, args=(client,), daemon=True).start()
