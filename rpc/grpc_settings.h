#pragma once

// How every gRPC server and channel of spate's control plane is set up: one place for the safety
// rules.
//
//  - An address that is not loopback needs mutual TLS, listening or dialling. There is no way round
//  it.
//  - No SO_REUSEPORT: a second server on the same port fails instead of taking half the
//  connections.
//  - No HTTP proxy, no transparent retries, only ipv4:/ipv6: literals or names resolved by us.
//  - Keepalive on both sides that agree with each other; reconnect back-off at most 5 s.
//  - Bounded messages, metadata and streams.
//
// Names are looked up here, once and blocking, when a server or channel is made; "localhost" is
// 127.0.0.1. A name counts as loopback only if all its addresses do. No state; any thread.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/endpoint.h"
#include "common/result.h"

namespace spate::rpc {

inline constexpr int kMaxControlMessageBytes = 4 * 1024 * 1024;  // longer ones are sent in pieces
inline constexpr int kMaxMetadataBytes = 8 * 1024;
inline constexpr int kMaxConcurrentStreams = 128;  // per connection

// PEM file paths. All three or none.
struct TlsFiles {
  std::string ca;
  std::string certificate;
  std::string key;

  bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};

// Their contents.
struct TlsMaterial {
  std::string ca;
  std::string certificate;
  std::string key;
};

// Reads and checks them: readable, PEM, the key belongs to the certificate, the certificate is of
// the CA and in its time. The error names the file and how to get a good one.
Result<TlsMaterial> load_tls_files(const TlsFiles& files);

// Roles, as written in a certificate's URI name "spiffe://spate/ROLE/NAME" (see docs/operating.md).
enum class Role { controller, agent, op, target };
std::string_view name(Role role);  // "controller", "agent", "operator", "target"

// Server credentials for `listen`, or why there are none. With files: mutual TLS, client
// certificate required, also on loopback.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const Endpoint& listen,
                                                                    const TlsFiles& files);
// For servers that bring an address and rules of their own: the limits, keepalive and port rules
// alone.
void apply_server_limits(grpc::ServerBuilder& builder);

// Applies limits, keepalive and port rules to a builder, and adds the port. `bound_port` as in
// AddListeningPort.
Result<void> configure_server(grpc::ServerBuilder& builder, const Endpoint& listen,
                              const TlsFiles& files, int* bound_port);

// A channel to `endpoint`. With files: mutual TLS, and the server's certificate must carry
// `server_role`.
Result<std::shared_ptr<grpc::Channel>> make_channel(const Endpoint& endpoint, const TlsFiles& files,
                                                    Role server_role);

// Whether the peer of this call may act as one of `roles`. On loopback without TLS everybody may.
// The error's text names the role the certificate has and the ones that were needed.
Result<void> authorize(const grpc::ServerContextBase& context, const std::vector<Role>& roles);
// The NAME of the peer's certificate; empty without TLS.
std::string peer_name(const grpc::ServerContextBase& context);

}  // namespace spate::rpc
