#include "agent/drivers/header_blocks.h"

#include <nghttp2/nghttp2.h>

#include <vector>

#include "common/check.h"

namespace spate::agent {
namespace {

// What every peer has from the start (RFC 7541, 6.5.2 of RFC 9113), and what nghttp2 limits itself
// to.
constexpr std::size_t kDefaultTable = 4096;
constexpr std::size_t kEntryOverhead = 32;  // RFC 7541, 4.1
// The smallest SETTINGS_MAX_FRAME_SIZE there is, less some room for changes of the table's size.
constexpr std::size_t kMostBytes = 16'384 - 64;

class Deflater {
 public:
  explicit Deflater(std::size_t table) {
    CHECK(nghttp2_hd_deflate_new(&deflater_, table) == 0, "out of memory");
  }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater() { nghttp2_hd_deflate_del(deflater_); }

  std::string block(std::vector<nghttp2_nv>& fields) {
    std::string out(nghttp2_hd_deflate_bound(deflater_, fields.data(), fields.size()), '\0');
    const ssize_t size =
        nghttp2_hd_deflate_hd(deflater_, reinterpret_cast<std::uint8_t*>(out.data()), out.size(),
                              fields.data(), fields.size());
    CHECK(size >= 0, "the bound of a header block is too small");
    out.resize(static_cast<std::size_t>(size));
    return out;
  }

 private:
  nghttp2_hd_deflater* deflater_ = nullptr;
};

std::uint8_t* bytes_of(const std::string& text) {
  return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));  // only read
}

}  // namespace

std::optional<HeaderBlocks> HeaderBlocks::make(std::span<const HeaderField> headers) {
  std::vector<nghttp2_nv> fields;
  // If the table holds all fields at once none is ever put out of it, and all later blocks are the
  // same.
  std::size_t needed = 0;
  for (const auto& [name, value] : headers) {
    fields.push_back(
        {bytes_of(name), bytes_of(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    needed += name.size() + value.size() + kEntryOverhead;
  }

  HeaderBlocks blocks;
  Deflater without_table(0);
  without_table.block(fields);  // this one announces the table's size, the later ones do not
  blocks.stateless = without_table.block(fields);
  if (blocks.stateless.size() > kMostBytes) return std::nullopt;

  if (needed <= kDefaultTable) {
    Deflater deflater(kDefaultTable);
    blocks.first = deflater.block(fields);
    blocks.next = deflater.block(fields);
    blocks.table_bytes = needed;
  }
  return blocks;
}

}  // namespace spate::agent
