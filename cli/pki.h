#pragma once

// Certificates for a cluster: one CA, and one key per program. Everything cryptographic is
// OpenSSL's. Certificates are what rpc/grpc_settings.h checks: URI name spiffe://spate/ROLE/NAME,
// DNS name ROLE.spate.

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace spate::cli {

inline constexpr int kCaDays = 3650;

struct KeyPairFiles {
  std::string certificate;
  std::string key;  // readable by its owner only
};

// Makes DIRECTORY/ca.crt and ca.key. Refuses to replace either.
Result<KeyPairFiles> make_ca(const std::string& directory);

struct CertificateRequest {
  std::string role;                // controller, agent, operator or target
  std::string name;                // letters, digits, '.', '_' and '-'; at most 64
  std::vector<std::string> hosts;  // further names or addresses it answers under
  int days = 365;                  // no longer than the CA's own
};

// Makes DIRECTORY/ROLE-NAME.crt and .key with the CA in DIRECTORY. Refuses to replace either.
Result<KeyPairFiles> issue(const std::string& directory, const CertificateRequest& request);

struct CertificateInfo {
  std::string identity;        // "spiffe://spate/agent/pc-01"; "" if it has none
  std::int64_t days_left = 0;  // negative: expired
};

// Reads a PEM certificate.
Result<CertificateInfo> inspect(const std::string& certificate_file);

}  // namespace spate::cli
