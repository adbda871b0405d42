"""A gRPC server by Debian's grpcio: the oracle for what an agent says it sent. Prints `listening on HOST:PORT`;
on SIGTERM prints `received N` and ends."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent import futures

import grpc

# Before any thread exists, so that only sigwait() below sees it.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

with tempfile.TemporaryDirectory() as generated:
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run(["protoc", f"-I{here}", f"--python_out={generated}", "peer.proto"], check=True, cwd=here)
    sys.path.insert(0, generated)
    import peer_pb2

lock = threading.Lock()
received = 0


def count():
    global received
    with lock:
        received += 1


def add(request, _context):
    count()
    return peer_pb2.AddReply(sum=(request.a + request.b) % 2**31)


def fail(_request, context):
    count()
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "always fails")


def handler(function):
    return grpc.unary_unary_rpc_method_handler(function, request_deserializer=peer_pb2.AddRequest.FromString,
                                               response_serializer=peer_pb2.AddReply.SerializeToString)


server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
server.add_generic_rpc_handlers([
    grpc.method_handlers_generic_handler("peer.v1.Peer", {"Add": handler(add), "Fail": handler(fail)})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"listening on 127.0.0.1:{port}", flush=True)
signal.sigwait({signal.SIGTERM})
print(f"received {received}", flush=True)
os._exit(0)
