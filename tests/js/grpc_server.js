// A gRPC server that nobody here wrote, by @grpc/grpc-js: the oracle for what an agent says it sent.
// usage: node grpc_server.js PROTO_FILE; prints `listening on 127.0.0.1:PORT`; on SIGTERM prints
// `received N` and ends. Method: peer.v1.Peer/Add.
'use strict';
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const proto = grpc.loadPackageDefinition(loader.loadSync(process.argv[2], { keepCase: true }));
let received = 0;
const server = new grpc.Server();
server.addService(proto.peer.v1.Peer.service, {
  Add(call, callback) {
    received++;
    callback(null, { sum: call.request.a + call.request.b });
  },
  Fail(call, callback) {
    received++;
    callback({ code: grpc.status.FAILED_PRECONDITION, details: 'always fails' });
  },
});
server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(`listening on 127.0.0.1:${port}`);
});
process.on('SIGTERM', () => {
  console.log(`received ${received}`);
  process.exit(0);
});
