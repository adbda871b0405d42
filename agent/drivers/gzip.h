#pragma once

// Compresses request messages, each by itself, as gRPC's "gzip" encoding wants it. Keeps zlib's
// state from one message to the next: setting it up costs more than compressing a small message.
// One thread. zlib stays behind the .cc.

#include <memory>
#include <string>
#include <string_view>

namespace spate::agent {

class GzipDeflater {
 public:
  GzipDeflater();
  ~GzipDeflater();
  GzipDeflater(const GzipDeflater&) = delete;
  GzipDeflater& operator=(const GzipDeflater&) = delete;

  // Appends `message` as one gzip stream.
  void append(std::string_view message, std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spate::agent
