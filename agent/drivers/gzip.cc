#include "agent/drivers/gzip.h"

#include <zlib.h>

#include "common/check.h"

namespace spate::agent {

struct GzipDeflater::State {
  z_stream stream{};
};

GzipDeflater::GzipDeflater() : state_(std::make_unique<State>()) {
  constexpr int kGzipWindow = 15 + 16;  // the largest window, in gzip's wrapping
  constexpr int kMemory = 8;            // zlib's own default
  CHECK(deflateInit2(&state_->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemory,
                     Z_DEFAULT_STRATEGY) == Z_OK,
        "out of memory");
}

GzipDeflater::~GzipDeflater() { deflateEnd(&state_->stream); }

void GzipDeflater::append(std::string_view message, std::string& out) {
  z_stream& z = state_->stream;
  CHECK(deflateReset(&z) == Z_OK, "zlib's state is broken");
  const std::size_t before = out.size();
  const auto most = deflateBound(&z, message.size());
  out.resize(before + most);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(message.data()));  // only read
  z.avail_in = static_cast<uInt>(message.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data() + before);
  z.avail_out = static_cast<uInt>(most);
  CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib's bound is too small");
  out.resize(out.size() - z.avail_out);
}

}  // namespace spate::agent
