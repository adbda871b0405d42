#include "rpc/grpc_settings.h"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace spate::rpc {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kIdPrefix = "spiffe://spate/";
constexpr std::array<Role, 4> kRoles = {Role::controller, Role::agent, Role::op, Role::target};

// A client that pings more often than a server allows is thrown out ("too_many_pings"), so the two
// belong together: pings every 20 s, at least 10 s apart.
constexpr std::chrono::milliseconds kKeepaliveTime = 20s;
constexpr std::chrono::milliseconds kKeepaliveTimeout = 10s;
constexpr std::chrono::milliseconds kPingsAtLeastApart = 10s;
constexpr std::chrono::milliseconds kFirstReconnect = 200ms;
constexpr std::chrono::milliseconds kSlowestReconnect = 5s;

constexpr int ms(std::chrono::milliseconds d) { return static_cast<int>(d.count()); }

// The addresses that a host stands for, at least one.
Result<std::vector<IpAddress>> resolve(const std::string& host) {
  if (auto literal = IpAddress::parse(host)) return std::vector<IpAddress>{*literal};
  // Not looked up: what a hosts file says of it must not decide whether TLS is needed.
  if (is_loopback_host(host)) return std::vector<IpAddress>{IpAddress::parse("127.0.0.1").value()};

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failed != 0) {
    return Error{ErrorCode::unavailable,
                 "cannot find the address of \"" + host + "\": " + gai_strerror(failed)};
  }
  std::vector<IpAddress> addresses;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    const auto address = IpAddress::parse(text);  // refuses zoned link-local ones
    if (address && std::find(addresses.begin(), addresses.end(), *address) == addresses.end()) {
      addresses.push_back(*address);
    }
  }
  freeaddrinfo(list);
  if (addresses.empty())
    return Error{ErrorCode::unavailable, "\"" + host + "\" has no usable address"};
  return addresses;
}

bool are_loopback(const std::vector<IpAddress>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const IpAddress& a) { return a.is_loopback(); });
}

// "ipv4:10.0.0.1:80,10.0.0.2:80": one family only, the first address's; gRPC knows no mixed form.
std::string uri_of(const std::vector<IpAddress>& addresses, std::uint16_t port) {
  const bool v4 = addresses[0].is_v4();
  std::string list;
  for (const IpAddress& a : addresses) {
    if (a.is_v4() != v4) continue;
    list += (list.empty() ? "" : ",") + Endpoint{a.to_string(), port}.to_string();
  }
  return (v4 ? "ipv4:" : "ipv6:") + list;
}

Error needs_tls(const char* verb, const Endpoint& endpoint) {
  return {ErrorCode::invalid, std::string("refusing to ") + verb + " " + endpoint.to_string() +
                                  " without TLS, because it is not loopback; make certificates "
                                  "with `spate pki init` and `spate pki "
                                  "issue`, and give --ca, --cert and --key"};
}

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials_for(
    const std::vector<IpAddress>& addresses, const Endpoint& listen, const TlsFiles& files) {
  if (files.empty()) {
    if (!are_loopback(addresses)) return needs_tls("listen on", listen);
    return grpc::InsecureServerCredentials();
  }
  auto material = load_tls_files(files);
  if (!material) return material.error();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = std::move(material->ca);
  options.pem_key_cert_pairs.push_back(
      {std::move(material->key), std::move(material->certificate)});
  return grpc::SslServerCredentials(options);
}

std::string property(const grpc::ServerContextBase& context, const std::string& key) {
  const auto auth = context.auth_context();
  if (!auth) return "";
  const auto values = auth->FindPropertyValues(key);
  // A certificate with two names of one kind is none of ours.
  return values.size() == 1 ? std::string(values[0].data(), values[0].size()) : "";
}

bool is_tls(const grpc::ServerContextBase& context) {
  const auto auth = context.auth_context();
  return auth &&
         (auth->IsPeerAuthenticated() || property(context, "transport_security_type") == "ssl");
}

struct Identity {
  std::string role;
  std::string name;
};

// From "spiffe://spate/ROLE/NAME".
std::optional<Identity> identity_of(const grpc::ServerContextBase& context) {
  std::string_view id;
  const std::string text = property(context, "peer_spiffe_id");
  id = text;
  if (id.substr(0, kIdPrefix.size()) != kIdPrefix) return std::nullopt;
  id.remove_prefix(kIdPrefix.size());
  const std::size_t slash = id.find('/');
  if (slash == id.npos || slash == 0 || slash + 1 == id.size()) return std::nullopt;
  return Identity{std::string(id.substr(0, slash)), std::string(id.substr(slash + 1))};
}

}  // namespace

std::string_view name(Role role) {
  switch (role) {
    case Role::controller:
      return "controller";
    case Role::agent:
      return "agent";
    case Role::op:
      return "operator";
    case Role::target:
      return "target";
  }
  return "unknown";
}

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const Endpoint& listen,
                                                                    const TlsFiles& files) {
  const auto addresses = resolve(listen.host);
  if (!addresses) return addresses.error();
  return server_credentials_for(*addresses, listen, files);
}

void apply_server_limits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  builder.SetMaxSendMessageSize(kMaxControlMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  // On by default: a second server would silently take half of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ms(kKeepaliveTime));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             ms(kPingsAtLeastApart));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ms(10s));
}

Result<void> configure_server(grpc::ServerBuilder& builder, const Endpoint& listen,
                              const TlsFiles& files, int* bound_port) {
  const auto addresses = resolve(listen.host);
  if (!addresses) return addresses.error();
  auto credentials = server_credentials_for(*addresses, listen, files);
  if (!credentials) return credentials.error();
  apply_server_limits(builder);
  // Here gRPC takes no scheme: it passes the text to getaddrinfo, which looks no literal up.
  builder.AddListeningPort(Endpoint{addresses->front().to_string(), listen.port}.to_string(),
                           std::move(*credentials), bound_port);
  return {};
}

Result<std::shared_ptr<grpc::Channel>> make_channel(const Endpoint& endpoint, const TlsFiles& files,
                                                    Role server_role) {
  const auto addresses = resolve(endpoint.host);
  if (!addresses) return addresses.error();
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  args.SetMaxSendMessageSize(kMaxControlMessageBytes);
  args.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // On by default: http_proxy in the environment would take the control stream elsewhere.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ms(kKeepaliveTime));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(kKeepaliveTimeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // "Minimum" is how long one attempt may take; the default of 20 s would sit out a controller's
  // restart.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ms(kSlowestReconnect));
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, ms(kFirstReconnect));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, ms(kSlowestReconnect));
  // Channels of one process share no connection, so each has the back-off and the certificate it
  // was made with.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);

  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (files.empty()) {
    if (!are_loopback(*addresses)) return needs_tls("dial", endpoint);
    credentials = grpc::InsecureChannelCredentials();
  } else {
    auto material = load_tls_files(files);
    if (!material) return material.error();
    credentials = grpc::SslCredentials(
        {std::move(material->ca), std::move(material->key), std::move(material->certificate)});
    // The certificate must be one that was issued for this role, wherever its owner's address is
    // now.
    args.SetSslTargetNameOverride(std::string(name(server_role)) + ".spate");
  }
  return grpc::CreateCustomChannel(uri_of(*addresses, endpoint.port), credentials, args);
}

Result<void> authorize(const grpc::ServerContextBase& context, const std::vector<Role>& roles) {
  // Without TLS a server can only have been made on loopback.
  if (!is_tls(context)) return {};
  const auto identity = identity_of(context);
  std::string needed;
  for (const Role role : roles) {
    if (identity && identity->role == name(role)) return {};
    needed += (needed.empty() ? "" : " or ") + std::string(name(role));
  }
  const bool known = identity && std::any_of(kRoles.begin(), kRoles.end(), [&](Role role) {
                       return identity->role == name(role);
                     });
  return Error{ErrorCode::refused, "this needs a certificate with the role " + needed +
                                       ", yours has " +
                                       (known ? "the role " + identity->role : "no role of spate") +
                                       "; issue one with `spate pki issue --role`"};
}

std::string peer_name(const grpc::ServerContextBase& context) {
  const auto identity = is_tls(context) ? identity_of(context) : std::nullopt;
  return identity ? identity->name : "";
}

}  // namespace spate::rpc
