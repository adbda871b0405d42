#include "cli/descriptors.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>

#include "cli/files.h"
#include "tests/unit/temporary_directory.h"

namespace spate::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Descriptors : public ::testing::Test {
 protected:
  void SetUp() override {
    write("shop/types.proto", R"(syntax = "proto3"; package shop;
      import "google/protobuf/timestamp.proto";
      message Order { google.protobuf.Timestamp at = 1; })");
    write("shop/shop.proto", R"(syntax = "proto3"; package shop;
      import "shop/types.proto";
      service Shop { rpc Buy(Order) returns (Order); rpc Follow(Order) returns (stream Order); })");
  }
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file(directory_ / name, text, 0644, IfExists::replace));
  }
  DescriptorsOrProblems read(const std::string& proto, const std::string& method) {
    Call call;
    call.proto = proto;
    call.method = method;
    return read_descriptors(call, directory_ / "plan.jsonc");
  }

  TemporaryDirectory directory_;
};

TEST_F(Descriptors, HaveEverythingThatIsImportedFirst) {
  const auto result = read("shop/shop.proto", "shop.Shop/Buy");
  ASSERT_THAT(result.problems, IsEmpty());
  google::protobuf::FileDescriptorSet set;
  ASSERT_TRUE(set.ParseFromString(result.descriptor_set));
  std::vector<std::string> names;
  for (const auto& file : set.file()) names.push_back(file.name());
  EXPECT_THAT(names,
              ElementsAre("google/protobuf/timestamp.proto", "shop/types.proto", "shop.proto"));
}

TEST_F(Descriptors, OfNoFileAreEmpty) {
  const auto result = read("", "spate.target.v1.Calls/Call");
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.descriptor_set, "");
}

TEST_F(Descriptors, MistakesHaveTheirPlace) {
  write("bad.proto", "syntax = \"proto3\";\nmessage M {\n  string s = ;\n}\n");
  EXPECT_THAT(read("bad.proto", "a.B/C").problems.at(0), HasSubstr("bad.proto:3:14: "));
  write("lost.proto", "syntax = \"proto3\";\nimport \"nowhere.proto\";\n");
  const auto lost = read("lost.proto", "a.B/C").problems;
  EXPECT_THAT(lost, ::testing::Contains(HasSubstr("nowhere.proto")));
  EXPECT_THAT(read("missing.proto", "a.B/C").problems.at(0), HasSubstr("there is no "));
}

TEST_F(Descriptors, AMethodThatIsNotThereIsRefusedWithTheNearest) {
  EXPECT_THAT(
      read("shop/shop.proto", "shop.Shop/Bye").problems,
      ElementsAre("shop/shop.proto has no method shop.Shop/Bye; did you mean shop.Shop/Buy?"));
  EXPECT_THAT(read("shop/shop.proto", "shop.Shop/Follow").problems.at(0), HasSubstr("streaming"));
}

TEST_F(Descriptors, ASetIsReadAsItIs) {
  const auto set = read("shop/shop.proto", "shop.Shop/Buy").descriptor_set;
  write("shop.binpb", set);
  Call call;
  call.descriptor_set = "shop.binpb";
  call.method = "shop.Shop/Buy";
  const auto result = read_descriptors(call, directory_ / "plan.jsonc");
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.descriptor_set, set);
  write("shop.binpb", "\xff\xff nonsense");
  EXPECT_THAT(read_descriptors(call, directory_ / "plan.jsonc").problems.at(0),
              HasSubstr("FileDescriptorSet"));
}

}  // namespace
}  // namespace spate::cli
