#include "agent/drivers/header_blocks.h"

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <vector>

namespace spate::agent {
namespace {

using Fields = std::vector<HeaderField>;

const Fields kFields = {{":method", "POST"},
                        {":scheme", "http"},
                        {":path", "/spate.target.v1.Calls/Call"},
                        {":authority", "127.0.0.1:7000"},
                        {"te", "trailers"},
                        {"spate-run", "r1-20261130-101010-abcd"}};

// The peer's side: what it understands.
class Inflater {
 public:
  Inflater() { nghttp2_hd_inflate_new(&inflater_); }
  ~Inflater() { nghttp2_hd_inflate_del(inflater_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void change_table(std::size_t size) { nghttp2_hd_inflate_change_table_size(inflater_, size); }

  Fields read(std::string block) {
    Fields fields;
    auto* at = reinterpret_cast<std::uint8_t*>(block.data());
    std::size_t left = block.size();
    for (;;) {
      nghttp2_nv field{};
      int flags = 0;
      const ssize_t used = nghttp2_hd_inflate_hd2(inflater_, &field, &flags, at, left, 1);
      if (used < 0) return {{"error", nghttp2_strerror(static_cast<int>(used))}};
      at += used;
      left -= static_cast<std::size_t>(used);
      if (flags & NGHTTP2_HD_INFLATE_EMIT)
        fields.emplace_back(
            std::string(reinterpret_cast<const char*>(field.name), field.namelen),
            std::string(reinterpret_cast<const char*>(field.value), field.valuelen));
      if (flags & NGHTTP2_HD_INFLATE_FINAL) break;
    }
    nghttp2_hd_inflate_end_headers(inflater_);
    return fields;
  }

 private:
  nghttp2_hd_inflater* inflater_ = nullptr;
};

TEST(HeaderBlocks, SayTheSameInEveryForm) {
  const auto blocks = HeaderBlocks::make(kFields);
  ASSERT_TRUE(blocks);
  Inflater peer;
  EXPECT_EQ(peer.read(blocks->first), kFields);
  EXPECT_EQ(peer.read(blocks->next), kFields);
  EXPECT_EQ(peer.read(blocks->stateless), kFields);
  EXPECT_EQ(peer.read(blocks->next), kFields);
  EXPECT_LT(blocks->next.size(), blocks->first.size());
}

TEST(HeaderBlocks, NeedNoTableIfStateless) {
  const auto blocks = HeaderBlocks::make(kFields);
  ASSERT_TRUE(blocks);
  Inflater peer;
  peer.change_table(0);
  // RFC 7541, 4.2: the change is announced once; then nothing else is needed.
  EXPECT_EQ(peer.read(std::string("\x20", 1) + blocks->stateless), kFields);
  EXPECT_EQ(peer.read(blocks->stateless), kFields);
}

TEST(HeaderBlocks, GiveUpTheTableWhenTheFieldsDoNotFit) {
  Fields fields = kFields;
  for (int i = 0; i < 10; ++i) fields.emplace_back("x-" + std::to_string(i), std::string(500, 'v'));
  const auto blocks = HeaderBlocks::make(fields);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->table_bytes, 0);
  HeaderBlockChoice choice;
  EXPECT_EQ(&choice.choose(*blocks, 4096, false), &blocks->stateless);
}

TEST(HeaderBlocks, AreNotMadeIfOneFrameCannotHoldThem) {
  Fields fields = kFields;
  fields.emplace_back("x-large", std::string(30'000, '~'));
  EXPECT_FALSE(HeaderBlocks::make(fields));
}

TEST(HeaderBlockChoice, FillsTheTableOnceThenUsesIt) {
  const auto blocks = HeaderBlocks::make(kFields);
  ASSERT_TRUE(blocks);
  HeaderBlockChoice choice;
  EXPECT_EQ(&choice.choose(*blocks, 4096, false), &blocks->first);
  EXPECT_EQ(&choice.choose(*blocks, 4096, false), &blocks->next);
  EXPECT_EQ(&choice.choose(*blocks, 4096, false), &blocks->next);
}

TEST(HeaderBlockChoice, LeavesASmallTableAlone) {
  const auto blocks = HeaderBlocks::make(kFields);
  ASSERT_TRUE(blocks);
  HeaderBlockChoice choice;
  EXPECT_EQ(&choice.choose(*blocks, blocks->table_bytes - 1, true), &blocks->stateless);
  EXPECT_EQ(&choice.choose(*blocks, 4096, true), &blocks->stateless);
}

TEST(HeaderBlockChoice, TrustsTheTableNoMoreAfterAChangeOfItsSize) {
  const auto blocks = HeaderBlocks::make(kFields);
  ASSERT_TRUE(blocks);
  HeaderBlockChoice choice;
  EXPECT_EQ(&choice.choose(*blocks, 4096, true), &blocks->first);  // before it is filled: no harm
  EXPECT_EQ(&choice.choose(*blocks, 4096, false), &blocks->next);
  EXPECT_EQ(&choice.choose(*blocks, 4096, true), &blocks->stateless);
  EXPECT_EQ(&choice.choose(*blocks, 4096, false), &blocks->stateless);
}

}  // namespace
}  // namespace spate::agent
