#pragma once

// Addresses: host:port, target URLs, loopback, and an agent's list of targets it may reach. Pure;
// names are resolved elsewhere, and the address really connected to is what is checked.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace spate {

struct Endpoint {
  std::string host;  // name or address literal, without brackets
  std::uint16_t port = 0;

  std::string to_string() const;  // "[::1]:80" for IPv6 literals
  bool operator==(const Endpoint&) const = default;
};

// "127.0.0.1:7000", "[::1]:7000", "server:7000". Port 0 is accepted: a listener's "any free port".
// A host of digits and dots must be a whole IPv4 address: what inet_aton would make of "127.1" or
// "0x7f.1" is refused.
Result<Endpoint> parse_endpoint(std::string_view text);

enum class Scheme { grpc, grpcs };

struct TargetUrl {
  Scheme scheme = Scheme::grpc;
  Endpoint endpoint;

  bool is_tls() const { return scheme == Scheme::grpcs; }
  std::string to_string() const;
};

// "grpc://host:port" or "grpcs://host:port", port not 0; anything after the port is refused.
Result<TargetUrl> parse_target_url(std::string_view text);

// An IP address. IPv4-mapped (::ffff:a.b.c.d) and NAT64 (64:ff9b::a.b.c.d) forms are the IPv4
// address they stand for, and compare equal to it.
class IpAddress {
 public:
  // Strict: no octal, hex, zone or short forms, no brackets. NAT64 forms of 0.0.0.0/8 and
  // 127.0.0.0/8 are refused: what they reach is not this host, and must never pass for it.
  static Result<IpAddress> parse(std::string_view text);
  bool is_loopback() const;  // 127.0.0.0/8, ::1
  // Never a target, whatever a list says: 0.0.0.0/8, 169.254.0.0/16, multicast, broadcast,
  // fe80::/10, and
  // ::/96 but for ::1 (unspecified, and the IPv4-compatible form that nothing uses any more).
  bool is_forbidden_target() const;
  std::string to_string() const;
  const std::array<std::uint8_t, 16>& bytes() const { return bytes_; }  // IPv4 as ::ffff:a.b.c.d
  bool is_v4() const;
  bool operator==(const IpAddress&) const = default;
  // The first `bits` of the 128-bit form are those of `network`.
  bool is_within(const IpAddress& network, int bits) const;
  IpAddress masked(int bits) const;  // all bits after the first `bits` cleared

 private:
  std::array<std::uint8_t, 16> bytes_{};  // ::
};

// True if the host is a loopback literal or "localhost" (which is only ever dialled as 127.0.0.1 or
// ::1).
bool is_loopback_host(std::string_view host);

// What an agent's owner lets it reach: CIDR:PORT entries, port a number, a range a-b, or *.
// Loopback, any port, by default. "10.0.0.0/8:7000", "10.0.0.5:7000-7010", "[fd00::/8]:7000",
// "[::1]:*". IPv6 entries match IPv6 addresses only, so [::/0] does not open IPv4.
class AllowList {
 public:
  AllowList();                                                              // loopback only
  static Result<AllowList> parse(const std::vector<std::string>& entries);  // empty: the default

  bool allows(const IpAddress& address, std::uint16_t port) const;
  std::string to_string() const;  // "127.0.0.0/8:*, [::1/128]:*"

 private:
  struct Entry {
    IpAddress network;
    int prefix_bits = 128;  // of the 128-bit form
    std::uint16_t port_low = 1;
    std::uint16_t port_high = 65535;
  };
  static Result<Entry> parse_entry(std::string_view text);
  std::vector<Entry> entries_;
};

}  // namespace spate
