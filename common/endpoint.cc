#include "common/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

// Strict readers. What is accepted here is dialled later, so a text must have one meaning only:
// everything that another parser might understand differently (octal, hex, short and zoned
// addresses, trailing dots, user names, paths) is refused.

namespace spate {
namespace {

using Bytes = std::array<std::uint8_t, 16>;

constexpr Bytes kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr Bytes kNat64Prefix = {0, 0x64, 0xff, 0x9b};
constexpr int kV4Bits = 96;  // where the IPv4 address begins in the 128-bit form

constexpr Bytes v4(std::uint8_t a, std::uint8_t b = 0, std::uint8_t c = 0, std::uint8_t d = 0) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

struct Prefix {
  Bytes bytes;
  int bits;
};

constexpr std::array<Prefix, 7> kForbidden = {{
    {v4(0), kV4Bits + 8},           // this network
    {v4(169, 254), kV4Bits + 16},   // link-local, and the clouds' metadata services
    {v4(224), kV4Bits + 4},         // multicast
    {v4(255, 255, 255, 255), 128},  // broadcast
    {Bytes{0xfe, 0x80}, 10},        // link-local
    {Bytes{0xff}, 8},               // multicast
    {Bytes{}, 96},                  // unspecified and IPv4-compatible
}};
constexpr Bytes kV6Loopback = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

bool same_prefix(const Bytes& a, const Bytes& b, int bits) {
  const auto whole = static_cast<std::size_t>(bits / 8);
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(whole), b.begin()))
    return false;
  const int rest = bits % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

bool is_forbidden(const Bytes& network, int bits) {
  if (network == kV6Loopback && bits == 128) return false;
  return std::any_of(kForbidden.begin(), kForbidden.end(), [&](const Prefix& p) {
    return bits >= p.bits && same_prefix(network, p.bytes, p.bits);
  });
}

std::string quoted(std::string_view text) { return "\"" + std::string(text.substr(0, 100)) + "\""; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Decimal without sign or leading zeros, at most `max`.
bool parse_number(std::string_view text, int max, int& out) {
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), is_digit))
    return false;
  if (text[0] == '0' && text.size() > 1) return false;
  int value = 0;
  for (const char c : text) value = value * 10 + (c - '0');
  out = value;
  return value <= max;
}

// A host whose last label is a number would be taken for an IPv4 address by somebody (WHATWG's
// rule).
bool looks_like_v4(std::string_view host) {
  const std::string_view last = host.substr(host.rfind('.') == host.npos ? 0 : host.rfind('.') + 1);
  if (last.empty()) return false;
  if (std::all_of(last.begin(), last.end(), is_digit)) return true;
  return last.size() > 1 && last[0] == '0' && lower(last[1]) == 'x' &&
         std::all_of(last.begin() + 2, last.end(),
                     [](char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); });
}

// Letters, digits, '-' and '_' in labels of at most 63; at most 253 in all; no trailing dot.
Result<void> check_name(std::string_view host) {
  if (host.size() > 253) return invalid("host name is longer than 253 characters");
  std::size_t label = 0;
  for (const char c : host) {
    if (c == '.') {
      if (label == 0) return invalid("host name " + quoted(host) + " has an empty label");
      label = 0;
      continue;
    }
    const bool allowed =
        is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '-' || c == '_';
    if (!allowed)
      return invalid("host name " + quoted(host) + " has a character that no host name has");
    if (++label > 63)
      return invalid("host name " + quoted(host) + " has a label longer than 63 characters");
  }
  if (label == 0) return invalid("host name " + quoted(host) + " must not end with a dot");
  return {};
}

Error no_address(std::string_view text) {
  return invalid(
      quoted(text) +
      " is not an IP address; write it whole, for example 10.0.0.5 or fd00::5 (no octal, hex, "
      "short or zoned forms)");
}

struct HostAndPort {
  std::string_view host;
  std::string_view port;
  bool bracketed = false;
};

// "host:port" or "[v6]:port".
Result<HostAndPort> split(std::string_view text) {
  constexpr const char* kExamples = "write HOST:PORT, for example 127.0.0.1:7000 or [::1]:7000";
  if (!text.empty() && text[0] == '[') {
    const std::size_t close = text.find(']');
    if (close == text.npos) return invalid(quoted(text) + " lacks the closing ]");
    if (close + 1 >= text.size() || text[close + 1] != ':') {
      return invalid(quoted(text) + " has no port; " + kExamples);
    }
    return HostAndPort{text.substr(1, close - 1), text.substr(close + 2), true};
  }
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return invalid(quoted(text) + " has no port; " + kExamples);
  if (text.find(':') != colon) {
    return invalid(quoted(text) +
                   " has more than one colon; an IPv6 address goes into brackets: [::1]:7000");
  }
  return HostAndPort{text.substr(0, colon), text.substr(colon + 1), false};
}

}  // namespace

// ---- Endpoint and TargetUrl

std::string Endpoint::to_string() const {
  const bool brackets = host.find(':') != host.npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return parts.error();
  int port = 0;
  if (!parts->port.empty() && !parse_number(parts->port, 65535, port)) {
    return invalid("port " + quoted(parts->port) + " of " + quoted(text) +
                   " is not a number from 0 to 65535");
  }
  if (parts->port.empty()) return invalid(quoted(text) + " has no port after the colon");
  if (parts->host.empty()) return invalid(quoted(text) + " has no host; this machine is 127.0.0.1");
  if (parts->bracketed || looks_like_v4(parts->host)) {
    const auto address = IpAddress::parse(parts->host);
    if (!address) return address.error();
    if (parts->bracketed && parts->host.find(':') == parts->host.npos) {
      return invalid(quoted(text) + ": brackets are for IPv6 addresses");
    }
  } else if (auto good = check_name(parts->host); !good) {
    return good.error();
  }
  return Endpoint{std::string(parts->host), static_cast<std::uint16_t>(port)};
}

std::string TargetUrl::to_string() const {
  return (is_tls() ? "grpcs://" : "grpc://") + endpoint.to_string();
}

Result<TargetUrl> parse_target_url(std::string_view text) {
  const std::size_t end = text.find("://");
  if (end == text.npos) {
    return invalid(quoted(text) +
                   " is not a target's URL; write grpc://HOST:PORT, or grpcs://HOST:PORT for TLS");
  }
  const std::string_view scheme = text.substr(0, end);
  if (scheme != "grpc" && scheme != "grpcs") {
    return invalid("scheme " + quoted(scheme) + " is not known; use grpc:// or grpcs://");
  }
  const std::string_view rest = text.substr(end + 3);
  if (rest.find_first_of("/?#") != rest.npos) {
    return invalid(quoted(text) +
                   " has something after the port; the method belongs in call.method");
  }
  if (rest.find('@') != rest.npos)
    return invalid(quoted(text) + " has a user name; a target's URL has none");
  auto endpoint = parse_endpoint(rest);
  if (!endpoint) return endpoint.error();
  if (endpoint->port == 0) return invalid(quoted(text) + " has port 0, which nobody listens on");
  return TargetUrl{scheme == "grpcs" ? Scheme::grpcs : Scheme::grpc, std::move(*endpoint)};
}

// ---- IpAddress

Result<IpAddress> IpAddress::parse(std::string_view text) {
  // The longest is ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255.
  if (text.size() > 45 || text.find('\0') != text.npos) return no_address(text);
  const std::string copy(text);
  IpAddress address;
  if (text.find(':') == text.npos) {
    address.bytes_ = kMappedPrefix;
    // inet_pton takes exactly four decimal numbers without leading zeros.
    if (inet_pton(AF_INET, copy.c_str(), &address.bytes_[12]) != 1) return no_address(text);
    return address;
  }
  if (inet_pton(AF_INET6, copy.c_str(), address.bytes_.data()) != 1) return no_address(text);
  if (same_prefix(address.bytes_, kNat64Prefix, 96)) {
    std::copy(kMappedPrefix.begin(), kMappedPrefix.begin() + 12, address.bytes_.begin());
    if (address.bytes_[12] == 0 || address.bytes_[12] == 127) {
      return invalid(quoted(text) + " is a NAT64 form of an address that exists on one host only");
    }
  }
  return address;
}

bool IpAddress::is_v4() const { return same_prefix(bytes_, kMappedPrefix, kV4Bits); }

bool IpAddress::is_loopback() const { return is_v4() ? bytes_[12] == 127 : bytes_ == kV6Loopback; }

bool IpAddress::is_forbidden_target() const { return is_forbidden(bytes_, 128); }

bool IpAddress::is_within(const IpAddress& network, int bits) const {
  return same_prefix(bytes_, network.bytes_, bits);
}

IpAddress IpAddress::masked(int bits) const {
  IpAddress result = *this;
  for (int bit = bits; bit < 128; ++bit) {
    result.bytes_[static_cast<std::size_t>(bit / 8)] &=
        static_cast<std::uint8_t>(~(0x80 >> (bit % 8)));
  }
  return result;
}

std::string IpAddress::to_string() const {
  char text[INET6_ADDRSTRLEN];
  const bool short_form = is_v4();
  const void* source = short_form ? &bytes_[12] : bytes_.data();
  return inet_ntop(short_form ? AF_INET : AF_INET6, source, text, sizeof text);
}

bool is_loopback_host(std::string_view host) {
  constexpr std::string_view kLocalhost = "localhost";
  if (std::equal(host.begin(), host.end(), kLocalhost.begin(), kLocalhost.end(),
                 [](char a, char b) { return lower(a) == b; })) {
    return true;
  }
  const auto address = IpAddress::parse(host);
  return address && address->is_loopback();
}

// ---- AllowList

AllowList::AllowList() {
  for (const std::string_view text : {"127.0.0.0/8:*", "[::1/128]:*"})
    entries_.push_back(parse_entry(text).value());
}

Result<AllowList::Entry> AllowList::parse_entry(std::string_view text) {
  const auto fail = [&](const std::string& why) {
    return invalid("allow entry " + quoted(text) + ": " + why);
  };
  const auto parts = split(text);
  if (!parts) {
    return fail(
        "write CIDR:PORT, for example 10.0.0.0/8:7000, 10.0.0.5:7000-7010 or [fd00::/8]:* (" +
        parts.error().message + ")");
  }
  const std::size_t slash = parts->host.find('/');
  const std::string_view literal = parts->host.substr(0, slash);
  const auto address = IpAddress::parse(literal);
  if (!address) {
    const bool name =
        !literal.empty() && literal.find(':') == literal.npos && !looks_like_v4(literal);
    return fail(name ? "a name is not enough; write the address" : address.error().message);
  }
  const bool written_as_v6 = literal.find(':') != literal.npos;
  if (parts->bracketed != written_as_v6)
    return fail("IPv6 addresses go into brackets, IPv4 addresses do not");

  Entry entry;
  entry.network = *address;
  const int widest = written_as_v6 ? 128 : 32;
  int bits = widest;
  if (slash != parts->host.npos && !parse_number(parts->host.substr(slash + 1), widest, bits)) {
    return fail("the prefix length must be a number from 0 to " + std::to_string(widest));
  }
  entry.prefix_bits = written_as_v6 ? bits : bits + kV4Bits;
  const IpAddress masked = address->masked(entry.prefix_bits);
  if (masked != *address) {
    return fail("the address has bits beyond its prefix; write " + masked.to_string() + "/" +
                std::to_string(bits) + " for the network or leave the /" + std::to_string(bits) +
                " away for the one address");
  }
  if (is_forbidden(entry.network.bytes(), entry.prefix_bits)) {
    return fail("link-local, multicast, broadcast and unspecified addresses are never allowed");
  }

  if (parts->port == "*") return entry;
  const std::size_t dash = parts->port.find('-');
  int low = 0;
  int high = 0;
  const bool good =
      parse_number(parts->port.substr(0, dash), 65535, low) &&
      parse_number(dash == parts->port.npos ? parts->port : parts->port.substr(dash + 1), 65535,
                   high);
  if (!good || low == 0)
    return fail("the port must be a number from 1 to 65535, a range like 7000-7010, or *");
  if (low > high) return fail("the port range goes backwards");
  entry.port_low = static_cast<std::uint16_t>(low);
  entry.port_high = static_cast<std::uint16_t>(high);
  return entry;
}

Result<AllowList> AllowList::parse(const std::vector<std::string>& entries) {
  AllowList list;
  if (entries.empty()) return list;
  list.entries_.clear();
  for (const std::string& text : entries) {
    auto entry = parse_entry(text);
    if (!entry) return entry.error();
    list.entries_.push_back(*entry);
  }
  return list;
}

bool AllowList::allows(const IpAddress& address, std::uint16_t port) const {
  if (address.is_forbidden_target()) return false;
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return address.is_v4() == e.network.is_v4() && address.is_within(e.network, e.prefix_bits) &&
           port >= e.port_low && port <= e.port_high;
  });
}

std::string AllowList::to_string() const {
  std::string out;
  for (const Entry& e : entries_) {
    if (!out.empty()) out += ", ";
    const bool short_form = e.network.is_v4();
    const std::string cidr = e.network.to_string() + "/" +
                             std::to_string(short_form ? e.prefix_bits - kV4Bits : e.prefix_bits);
    out += short_form ? cidr : "[" + cidr + "]";
    out += ":";
    if (e.port_low == 1 && e.port_high == 65535) {
      out += "*";
    } else {
      out += std::to_string(e.port_low);
      if (e.port_high != e.port_low) out += "-" + std::to_string(e.port_high);
    }
  }
  return out;
}

}  // namespace spate
