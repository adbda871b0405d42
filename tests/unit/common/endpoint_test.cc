#include "common/endpoint.h"

#include <gtest/gtest.h>

namespace spate {
namespace {

IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }

TEST(IpAddress, ReadsWholeAddressesOnly) {
  for (const std::string text :
       {"0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1", "fd00::5", "FD00::5",
        "1:2:3:4:5:6:7:8", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1"}) {
    EXPECT_TRUE(IpAddress::parse(text).has_value()) << text;
  }
  for (const std::string& text : std::vector<std::string>{"",
                                                          " ",
                                                          "127.1",
                                                          "127.0.1",
                                                          "2130706433",
                                                          "0x7f.0.0.1",
                                                          "0x7f000001",
                                                          "0177.0.0.1",
                                                          "127.0.0.01",
                                                          "127.0.0.1.",
                                                          ".127.0.0.1",
                                                          "127.0.0.256",
                                                          "127.0.0.-1",
                                                          "127.0.0.+1",
                                                          " 127.0.0.1",
                                                          "127.0.0.1 ",
                                                          "127.0.0.1\n",
                                                          std::string("127.0.0.1\0", 10),
                                                          "127.0.0.1/8",
                                                          "127,0,0,1",
                                                          "127.0.0.1:80",
                                                          "[::1]",
                                                          "::1%lo",
                                                          "fe80::1%eth0",
                                                          "::1/128",
                                                          "1::2::3",
                                                          "1:2:3:4:5:6:7",
                                                          "1:2:3:4:5:6:7:8:9",
                                                          "::12345",
                                                          ":::",
                                                          "::g",
                                                          "::ffff:127.1",
                                                          "::ffff:0x7f.0.0.1",
                                                          "::ffff:127.0.0.01",
                                                          "localhost",
                                                          "one",
                                                          "１27.0.0.1",
                                                          std::string(200, '1')}) {
    EXPECT_FALSE(IpAddress::parse(text).has_value()) << text;
  }
}

TEST(IpAddress, TakesMappedAndNat64FormsForTheIpv4Address) {
  for (const std::string text : {"::ffff:10.1.2.3", "::ffff:a01:203", "0:0:0:0:0:FFFF:10.1.2.3",
                                 "64:ff9b::10.1.2.3", "64:ff9b::a01:203"}) {
    EXPECT_EQ(ip(text), ip("10.1.2.3")) << text;
    EXPECT_EQ(ip(text).to_string(), "10.1.2.3");
    EXPECT_TRUE(ip(text).is_v4());
  }
  EXPECT_FALSE(ip("fd00::1").is_v4());
  EXPECT_EQ(ip("::ffff:127.0.0.1"), ip("127.0.0.1"));
  // These leave the host, so they must not pass for loopback.
  EXPECT_FALSE(IpAddress::parse("64:ff9b::127.0.0.1").has_value());
  EXPECT_FALSE(IpAddress::parse("64:ff9b::7f00:1").has_value());
  EXPECT_FALSE(IpAddress::parse("64:ff9b::").has_value());
  EXPECT_TRUE(ip("64:ff9b::169.254.169.254").is_forbidden_target());
}

TEST(IpAddress, KnowsLoopback) {
  for (const std::string text :
       {"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"}) {
    EXPECT_TRUE(ip(text).is_loopback()) << text;
  }
  for (const std::string text :
       {"126.255.255.255", "128.0.0.0", "::", "::2", "0.0.0.0", "::127.0.0.1", "1::1"}) {
    EXPECT_FALSE(ip(text).is_loopback()) << text;
  }
}

TEST(IpAddress, KnowsWhatIsNeverATarget) {
  for (const std::string text :
       {"0.0.0.0", "0.1.2.3", "169.254.0.1", "169.254.169.254", "224.0.0.1", "239.255.255.255",
        "255.255.255.255", "::", "fe80::1", "febf::1", "ff02::1", "::10.0.0.1", "::7f00:1",
        "::ffff:169.254.169.254", "::ffff:0.0.0.0"}) {
    EXPECT_TRUE(ip(text).is_forbidden_target()) << text;
  }
  for (const std::string text :
       {"127.0.0.1", "::1", "10.0.0.1", "169.253.0.1", "169.255.0.1", "223.255.255.255", "1.0.0.0",
        "fec0::1", "fe7f::1", "fd00::1", "2001:db8::1", "::1:0:0:1"}) {
    EXPECT_FALSE(ip(text).is_forbidden_target()) << text;
  }
}

TEST(Endpoint, ReadsNamesAndLiterals) {
  EXPECT_EQ(parse_endpoint("127.0.0.1:7000").value(), (Endpoint{"127.0.0.1", 7000}));
  EXPECT_EQ(parse_endpoint("[::1]:7000").value(), (Endpoint{"::1", 7000}));
  EXPECT_EQ(parse_endpoint("server-1.lab:1").value(), (Endpoint{"server-1.lab", 1}));
  EXPECT_EQ(parse_endpoint("my_server:65535").value(), (Endpoint{"my_server", 65535}));
  EXPECT_EQ(parse_endpoint("127.0.0.1:0").value().port, 0);
  EXPECT_EQ(parse_endpoint("[::1]:7000")->to_string(), "[::1]:7000");
  EXPECT_EQ(parse_endpoint("server:7000")->to_string(), "server:7000");
}

TEST(Endpoint, RefusesWhatHasTwoMeanings) {
  for (const std::string& text : std::vector<std::string>{"",
                                                          ":",
                                                          "host",
                                                          "host:",
                                                          ":7000",
                                                          "::1:7000",
                                                          "[::1]",
                                                          "[::1]7000",
                                                          "[::1:7000",
                                                          "[::1]:",
                                                          "[127.0.0.1]:80",
                                                          "[::1%lo]:80",
                                                          "[host]:80",
                                                          "[]:80",
                                                          "host:65536",
                                                          "host:-1",
                                                          "host:+1",
                                                          "host:07000",
                                                          "host:0x10",
                                                          "host: 80",
                                                          "host:80 ",
                                                          " host:80",
                                                          "host :80",
                                                          "ho/st:80",
                                                          "user@host:80",
                                                          "ho%73t:80",
                                                          "host.:80",
                                                          "host..lab:80",
                                                          ".host:80",
                                                          "127.0.0.1.:80",
                                                          "127.1:80",
                                                          "0x7f.1:80",
                                                          "0x7f000001:80",
                                                          "2130706433:80",
                                                          "0177.0.0.1:80",
                                                          "host.1:80",
                                                          "host.0x7f:80",
                                                          "localhost%00:80",
                                                          std::string("host\0:80", 8),
                                                          "h\tost:80",
                                                          "dns:///host:80",
                                                          "unix:/tmp/x:80",
                                                          std::string(64, 'a') + ":80",
                                                          "hôst:80",
                                                          "*:80"}) {
    EXPECT_FALSE(parse_endpoint(text).has_value()) << text;
  }
}

TEST(TargetUrl, ReadsBothSchemes) {
  const auto plain = parse_target_url("grpc://10.0.0.100:7000").value();
  EXPECT_FALSE(plain.is_tls());
  EXPECT_EQ(plain.to_string(), "grpc://10.0.0.100:7000");
  EXPECT_TRUE(parse_target_url("grpcs://[fd00::1]:7000")->is_tls());
  EXPECT_EQ(parse_target_url("grpcs://[fd00::1]:7000")->to_string(), "grpcs://[fd00::1]:7000");
}

TEST(TargetUrl, RefusesEverythingElse) {
  for (const std::string text :
       {"", "10.0.0.1:7000", "grpc:10.0.0.1:7000", "http://10.0.0.1:7000", "GRPC://h:1",
        "grpc://h:1/", "grpc://h:1/Service/Method", "grpc://h:1?x", "grpc://h:1#x",
        "grpc://user@h:1", "grpc://u:p@h:1", "grpc://h", "grpc://h:0", "grpc://", "grpc:///h:1",
        "unix:///tmp/x", "dns:///h:1", "xds:///h:1"}) {
    EXPECT_FALSE(parse_target_url(text).has_value()) << text;
  }
}

TEST(LoopbackHost, IsALiteralOrLocalhost) {
  for (const std::string text :
       {"localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback_host(text)) << text;
  }
  for (const std::string text :
       {"", "localhost.", "localhost.lab", "xlocalhost", "127.1", "0.0.0.0", "::", "10.0.0.1",
        "0x7f.0.0.1", "2130706433", "64:ff9b::127.0.0.1", "::127.0.0.1", "[::1]"}) {
    EXPECT_FALSE(is_loopback_host(text)) << text;
  }
}

AllowList list(const std::vector<std::string>& entries) {
  return AllowList::parse(entries).value();
}

TEST(AllowList, IsLoopbackByDefault) {
  for (const AllowList& l : {AllowList(), list({})}) {
    EXPECT_TRUE(l.allows(ip("127.0.0.1"), 7000));
    EXPECT_TRUE(l.allows(ip("::1"), 1));
    EXPECT_TRUE(l.allows(ip("::ffff:127.0.0.1"), 7000));
    EXPECT_FALSE(l.allows(ip("10.0.0.1"), 7000));
    EXPECT_FALSE(l.allows(ip("fd00::1"), 7000));
    EXPECT_EQ(l.to_string(), "127.0.0.0/8:*, [::1/128]:*");
  }
}

TEST(AllowList, MatchesNetworksAndPorts) {
  const AllowList l =
      list({"10.0.0.0/8:7000", "192.168.1.5:7000-7010", "[fd00::/8]:7000", "[2001:db8::1]:*"});
  EXPECT_TRUE(l.allows(ip("10.255.255.255"), 7000));
  EXPECT_TRUE(l.allows(ip("::ffff:10.1.1.1"), 7000));
  EXPECT_TRUE(l.allows(ip("64:ff9b::10.1.1.1"), 7000));
  EXPECT_FALSE(l.allows(ip("10.0.0.1"), 7001));
  EXPECT_FALSE(l.allows(ip("11.0.0.0"), 7000));
  EXPECT_TRUE(l.allows(ip("192.168.1.5"), 7000));
  EXPECT_TRUE(l.allows(ip("192.168.1.5"), 7010));
  EXPECT_FALSE(l.allows(ip("192.168.1.5"), 7011));
  EXPECT_FALSE(l.allows(ip("192.168.1.4"), 7000));
  EXPECT_TRUE(l.allows(ip("fdff::1"), 7000));
  EXPECT_FALSE(l.allows(ip("fe00::1"), 7000));
  EXPECT_TRUE(l.allows(ip("2001:db8::1"), 65535));
  EXPECT_FALSE(l.allows(ip("2001:db8::2"), 7000));
  EXPECT_FALSE(l.allows(ip("127.0.0.1"), 7000)) << "a list of one's own replaces the default";
  EXPECT_EQ(l.to_string(),
            "10.0.0.0/8:7000, 192.168.1.5/32:7000-7010, [fd00::/8]:7000, [2001:db8::1/128]:*");
}

TEST(AllowList, MatchesAtEveryPrefixLength) {
  for (int bits = 0; bits <= 32; ++bits) {
    const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
    const std::uint32_t network = 0x0a5a5a5a & mask;
    const auto text = [](std::uint32_t a) {
      return std::to_string(a >> 24) + "." + std::to_string(a >> 16 & 255) + "." +
             std::to_string(a >> 8 & 255) + "." + std::to_string(a & 255);
    };
    if (bits == 8 && network == 0) continue;
    const auto l = AllowList::parse({text(network) + "/" + std::to_string(bits) + ":1"});
    if (!l) {  // 0.0.0.0/8 … /31 lie within a forbidden network
      EXPECT_EQ(network >> 24, 0u) << bits;
      continue;
    }
    for (int flip = 0; flip < 32; ++flip) {
      const std::uint32_t address = 0x0a5a5a5a ^ (std::uint32_t{1} << flip);
      if (ip(text(address)).is_forbidden_target()) continue;
      EXPECT_EQ(l->allows(ip(text(address)), 1), (address & mask) == network)
          << bits << " " << text(address);
    }
  }
}

TEST(AllowList, NeverAllowsForbiddenTargets) {
  const AllowList all = list({"0.0.0.0/0:*", "[::/0]:*"});
  EXPECT_TRUE(all.allows(ip("8.8.8.8"), 1));
  EXPECT_TRUE(all.allows(ip("2001:db8::1"), 1));
  for (const std::string text :
       {"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::", "fe80::1", "ff02::1", "::8.8.8.8"}) {
    EXPECT_FALSE(all.allows(ip(text), 80)) << text;
  }
  EXPECT_FALSE(list({"[::/0]:*"}).allows(ip("8.8.8.8"), 1)) << "IPv6 entries do not open IPv4";
}

TEST(AllowList, SaysWhichEntryIsWrongAndWhy) {
  for (const std::string text : {"",
                                 "10.0.0.0/8",
                                 "10.0.0.0:",
                                 "10.0.0.0/8:0",
                                 "10.0.0.0/8:65536",
                                 "10.0.0.0/8:7000-",
                                 "10.0.0.0/8:-7000",
                                 "10.0.0.0/8:7010-7000",
                                 "10.0.0.0/8:7000-7001-7002",
                                 "10.0.0.0/8:**",
                                 "10.0.0.0/8:http",
                                 "10.0.0.0/8:07000",
                                 "10.0.0.0/33:7000",
                                 "10.0.0.0/-1:7000",
                                 "10.0.0.0/08:7000",
                                 "10.0.0.0/:7000",
                                 "10.0.0.0/8/8:7000",
                                 "10.0.0.5/8:7000",
                                 "10/8:7000",
                                 "010.0.0.0/8:7000",
                                 "0xa.0.0.0/8:7000",
                                 "10.0.0.0.:7000",
                                 "fd00::/8:7000",
                                 "[fd00::/8]",
                                 "[fd00::/129]:7000",
                                 "[fd00::5/8]:7000",
                                 "[fd00::%eth0]:7000",
                                 "[10.0.0.0/8]:7000",
                                 "[::ffff:10.0.0.0/8]:7000",
                                 "server:7000",
                                 "localhost:7000",
                                 "*:7000",
                                 " 10.0.0.0/8:7000",
                                 "10.0.0.0/8: 7000",
                                 "169.254.169.254:80",
                                 "169.254.0.0/16:*",
                                 "[fe80::/10]:*",
                                 "224.0.0.0/4:*",
                                 "0.0.0.0:*",
                                 "0.0.0.0/8:*",
                                 "255.255.255.255:*",
                                 "[::]:*",
                                 "[ff02::1]:*",
                                 "[64:ff9b::/96]:*"}) {
    const auto l = AllowList::parse({"10.0.0.1:1", text});
    ASSERT_FALSE(l.has_value()) << text;
    EXPECT_NE(l.error().message.find("\"" + text + "\""), std::string::npos) << l.error().message;
  }
  EXPECT_NE(AllowList::parse({"10.0.0.5/8:7000"}).error().message.find("10.0.0.0/8"),
            std::string::npos);
}

}  // namespace
}  // namespace spate
